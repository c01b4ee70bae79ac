"""Text 001: hooks by name, stopping by raising, a run history that callbacks extend, events of one's own."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from seed_run import BATCH, CLASSES, picture_trainer, pictures
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix

from sonosco_like import AbstractCallback, ModelTrainer, Stop, serializable, state
from sonosco_like.callbacks import (
    EarlyStopping,
    HistoryRecorder,
    PrintMetrics,
    ProgressBar,
    TerminateOnNaN,
    ThresholdStopper,
)
from sonosco_like.errors import UsageError
from sonosco_like.events import CallbackError, Moment


@serializable
class TwelveHooks(AbstractCallback):
    """The twelve hooks of the text under our names, each noted as it is heard."""

    heard: list[str] = state([])

    def on_attach(self, moment: Moment) -> None:
        self.heard.append("init end")

    def on_training_start(self, moment: Moment) -> None:
        self.heard.append("training run start")

    def on_epoch_start(self, moment: Moment) -> None:
        self.heard.append("train epoch start")

    def on_batch_start(self, moment: Moment) -> None:
        self.heard.append("train step start")

    def on_batch_end(self, moment: Moment) -> None:
        self.heard.append("train step end")

    def on_validation_start(self, moment: Moment) -> None:
        self.heard.append("eval epoch start")

    def on_validation_batch_start(self, moment: Moment) -> None:
        self.heard.append("eval step start")

    def on_validation_batch_end(self, moment: Moment) -> None:
        self.heard.append("eval step end")

    def on_validation_end(self, moment: Moment) -> None:
        self.heard.append("eval epoch end")

    def on_epoch_end(self, moment: Moment) -> None:
        self.heard.append("train epoch end")

    def on_training_end(self, moment: Moment) -> None:
        if moment.error is not None:
            self.heard.append(f"stopped: {moment.error}")
        self.heard.append("training run end")


EPOCH = [
    "train epoch start",
    *["train step start", "train step end"] * 3,
    "eval epoch start",
    *["eval step start", "eval step end"] * 2,
    "eval epoch end",
    "train epoch end",
]


def test_the_hooks_of_the_text_are_heard_in_its_order():
    picture_trainer(hooks := TwelveHooks()).start_training()
    assert hooks.heard == ["init end", "training run start", *EPOCH, *EPOCH, "training run end"]


def test_stopping_is_raising_and_the_end_of_the_training_knows_why():
    def stop(epoch, step, performance_measures, context):
        if step == 1:
            raise Stop("seen enough")

    trainer = picture_trainer(stop, hooks := TwelveHooks())
    trainer.start_training()
    assert trainer.global_step == 2
    assert hooks.heard[-4:] == ["train step end", "train epoch end", "stopped: seen enough", "training run end"]


def test_a_stop_at_the_validation_that_ends_an_epoch_is_known_at_the_end_too():
    trainer = picture_trainer(("validation_end", raise_stop), hooks := TwelveHooks())
    trainer.start_training()
    assert (trainer.epoch, trainer.global_step) == (1, 3)
    assert hooks.heard[-2:] == ["stopped: seen enough", "training run end"]


def raise_stop(moment: Moment) -> None:
    raise Stop("seen enough")


def test_callbacks_are_called_in_list_order_after_the_trainers_own_hook():
    heard = []

    class Hooked(ModelTrainer):
        def on_epoch_end(self, moment):
            heard.append("trainer")

    first = ("epoch_end", lambda moment: heard.append("first"))
    second = ("epoch_end", lambda moment: heard.append("second"))
    picture_trainer(first, second, cls=Hooked, epochs=1).start_training()
    assert heard == ["trainer", "first", "second"]


@serializable
class ClassificationMetrics(AbstractCallback):
    """The callback of the text: torchmetrics kept in evaluation hooks, written to the run history."""

    classes: int = CLASSES

    def __post_init__(self) -> None:
        self.confusion = MulticlassConfusionMatrix(num_classes=self.classes)
        self.accuracy = MulticlassAccuracy(num_classes=self.classes, average="micro")

    def measures_given(self) -> dict[str, bool]:
        return {"val_accuracy": False}

    def on_training_start(self, moment: Moment) -> None:
        device = next(moment.context.model.parameters()).device
        self.confusion.to(device)
        self.accuracy.to(device)

    def on_prediction_end(self, moment: Moment) -> None:
        _, classes = moment.args["batch"]
        predicted = moment.args["output"].argmax(dim=-1)
        self.confusion.update(predicted, classes)
        self.accuracy.update(predicted, classes)

    def on_validation_end(self, moment: Moment) -> None:
        moment.context.update_metric("val_confusion_matrix", self.confusion.compute().cpu())
        moment.context.update_metric("val_accuracy", self.accuracy.compute().item())
        self.confusion.reset()
        self.accuracy.reset()


def test_a_torchmetrics_metric_kept_in_evaluation_hooks_is_in_the_run_history():
    trainer = picture_trainer(ClassificationMetrics(), history := HistoryRecorder())
    trainer.start_training()
    with torch.no_grad():
        right = [(trainer.model(xb).argmax(-1) == yb).sum().item() for xb, yb in trainer.val_data_loader]
    assert history["val_accuracy"].steps == [3, 6]
    assert history["val_accuracy"].values[-1] == pytest.approx(sum(right) / (2 * BATCH))
    matrix = history["val_confusion_matrix"].values[-1]
    assert (tuple(matrix.shape), int(matrix.sum())) == ((CLASSES, CLASSES), 2 * BATCH)
    assert int(matrix.diagonal().sum()) == sum(right)


def test_what_a_callback_measures_can_be_read_and_watched_by_those_after_it():
    seen = []
    look = ("validation_end", lambda moment: seen.append(moment.context.performance_measures["val_accuracy"]))
    trainer = picture_trainer(ClassificationMetrics(), look, ThresholdStopper(monitor="val_accuracy", threshold=0.0))
    trainer.start_training()
    assert trainer.epoch == 1
    assert seen == [trainer.performance_measures["val_accuracy"]]


def test_a_measure_that_no_callback_gives_is_still_refused():
    trainer = picture_trainer(ClassificationMetrics(), EarlyStopping(monitor="val_acuracy"))
    with pytest.raises(UsageError, match=r"val_acuracy.*did you mean 'val_accuracy'"):
        trainer.start_training()


def test_what_a_callback_measured_is_saved_with_the_trainer():
    def fields():
        return {"callbacks": [ClassificationMetrics(), HistoryRecorder()], "train_data_loader": pictures(24, 0)}

    trainer = picture_trainer(**fields())
    trainer.start_training()
    saved = trainer.state_dict()
    again = picture_trainer(**fields())
    again.load_state_dict(saved)
    assert again.performance_measures["val_accuracy"] == trainer.performance_measures["val_accuracy"]


@serializable
class VerifyBatch(AbstractCallback):
    """Listens to an event that only some trainers fire."""

    verified: int = state(0)

    def on_verify_train_batch(self, moment: Moment) -> None:
        xb, yb = moment.args["xb"], moment.args["yb"]
        assert xb.shape == (BATCH, 1, 28, 28)
        assert yb.shape[0] == BATCH
        self.verified += 1


class TrainerWithCustomCallbackEvent(ModelTrainer):
    """Fires an event of its own before the loss of every batch."""

    events: ClassVar[tuple[str, ...]] = ("verify_train_batch",)

    def compute_loss(self, output: Any, batch: Any) -> torch.Tensor:
        xb, yb = batch
        self.fire("verify_train_batch", xb=xb, yb=yb)
        return super().compute_loss(output, batch)


def test_an_event_of_a_trainer_of_ones_own_is_heard():
    seen = []
    pair = ("verify_train_batch", lambda trainer, xb: seen.append(len(xb)))
    picture_trainer(verify := VerifyBatch(), pair, cls=TrainerWithCustomCallbackEvent).start_training()
    assert verify.verified == 6
    assert seen == [BATCH] * 6


def test_a_failing_verification_names_callback_and_event():
    trainer = picture_trainer(
        VerifyBatch(), cls=TrainerWithCustomCallbackEvent, train_data_loader=pictures(BATCH + 1, 0)
    )
    with pytest.raises(CallbackError, match="VerifyBatch failed at verify_train_batch: AssertionError"):
        trainer.start_training()


def test_a_hook_for_an_event_that_this_trainer_does_not_fire_is_refused():
    with pytest.raises(UsageError, match="on_verify_train_batch would never be called"):
        picture_trainer(VerifyBatch()).start_training()


def test_callbacks_are_added_listed_and_removed_by_class_or_instance():
    trainer = picture_trainer(EarlyStopping())
    trainer.add_callback(PrintMetrics)
    trainer.add_callback(nan := TerminateOnNaN())
    assert [type(each) for each in trainer.callbacks] == [EarlyStopping, PrintMetrics, TerminateOnNaN]
    trainer.remove_callback(EarlyStopping)
    trainer.remove_callback(nan)
    assert [type(each) for each in trainer.callbacks] == [PrintMetrics]
    with pytest.raises(UsageError, match="no callback EarlyStopping to remove"):
        trainer.remove_callback(EarlyStopping)
    trainer.set_callbacks([])
    assert trainer.callbacks == []


def test_the_callbacks_the_text_lists_run_together(capsys):
    listed = [TerminateOnNaN(), PrintMetrics(), ProgressBar(every="1ba"), EarlyStopping(patience=1, min_delta=100.0)]
    trainer = picture_trainer(*listed, epochs=5)
    trainer.start_training()
    assert trainer.epoch == 2
    out, err = capsys.readouterr()
    assert "epoch 1/5: loss" in out
    assert "epoch 1/5, step 2/3" in err

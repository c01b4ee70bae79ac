"""Text 000: a callable after every batch that reaches everything through its context, and the callbacks it lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from seed_run import ctc_trainer

from sonosco_like import AbstractCallback, Experiment, ModelTrainer, dumps, load, loads, save, serializable, state
from sonosco_like.callbacks import HistoryRecorder, LayerwiseGradientNorm
from sonosco_like.models import KeyValueDecoder, Recogniser


@serializable
class Collector(AbstractCallback):
    """A callback as the text defines one."""

    every: int = 1
    calls: list[tuple[int, int]] = state([])
    losses: list[float] = state([])
    closed: int = state(0)

    def __call__(self, epoch: int, step: int, performance_measures: Mapping[str, float], context: Any) -> None:
        assert isinstance(context, ModelTrainer)
        assert context.step == step
        if step % self.every == 0:
            self.calls.append((epoch, step))
            self.losses.append(performance_measures["loss"])

    def close(self) -> None:
        self.closed += 1


def test_it_is_called_after_every_batch_and_closed_at_the_end():
    ctc_trainer(collector := Collector()).start_training()
    assert collector.calls == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert collector.closed == 1


def test_performance_measures_are_running_averages():
    sums, counts, averages = [], [], []

    def look(moment):
        count = float(moment.context.loss.weight(moment.args["batch"]))  # what this loss is the mean over
        sums.append(moment.result.item() * count)
        counts.append(count)
        averages.append(sum(sums) / sum(counts))

    ctc_trainer(collector := Collector(), ("loss_end", look), epochs=1).start_training()
    assert len(set(counts)) > 1
    assert collector.losses == pytest.approx(averages, rel=1e-5)


def test_the_context_gives_access_to_everything():
    seen = {}

    def look(epoch, step, performance_measures, context):
        seen.update(model=context.model, rate=context.optimizer.param_groups[0]["lr"], data=context.val_data_loader)

    trainer = ctc_trainer(look)
    trainer.start_training()
    assert seen["model"] is trainer.model
    assert seen["data"] is trainer.val_data_loader
    assert seen["rate"] > 0


def test_it_is_saved_with_the_trainer_and_goes_on_where_it_was(tmp_path):
    trainer = ctc_trainer(Collector(every=2), epochs=1)
    trainer.start_training()
    save(trainer, tmp_path / "saved")
    again = load(tmp_path / "saved").callbacks[0]
    assert (again.every, again.calls) == (2, [(0, 0), (0, 2)])
    assert again.losses == trainer.callbacks[0].losses


def test_a_callback_with_its_own_constructor_is_refused_where_it_is_defined():
    with pytest.raises(TypeError, match="own __init__"):

        @serializable
        class Forgetful(AbstractCallback):
            def __init__(self, every):
                self.every = every


LISTED = """
- {class: EarlyStopping, monitor: val_loss, patience: 50}
- {class: LayerwiseGradientNorm}
- {class: HistoryRecorder, every: 1ba}
- {class: StepwiseLearningRateReduction, epoch_steps: 1, reduction_factor: 0.5}
- {class: ScheduledLearningRateReduction, epoch_schedule: [1], reduction_factor: 0.1}
- {class: ReduceLROnPlateau, monitor: val_loss}
- {class: ModelCheckpoint}
- {class: LogMeasures, every: 1ba}
- {class: TensorBoardCallback}
- {class: TbTextComparisonCallback}
- {class: TbTeacherForcingTextComparisonCallback}
- {class: LasTextComparisonCallback}
"""


def test_every_callback_the_text_lists_runs_from_a_yaml(tmp_path):
    callbacks = loads(LISTED, list[AbstractCallback])
    recogniser = ctc_trainer().model
    with_attention = Recogniser(
        vocabulary_size=recogniser.vocabulary_size,
        features=6,
        encoder=recogniser.encoder,
        attention_decoder=KeyValueDecoder(size=4),
        ctc=True,
    )
    trainer = ctc_trainer(*callbacks, scheduler=None, model=with_attention)
    experiment = Experiment(name="listed", trainer=trainer)
    experiment.start(tmp_path / "run")
    by_class = {type(each): each for each in trainer.callbacks}
    assert len(by_class[HistoryRecorder]["loss"]) == 6
    assert len(by_class[LayerwiseGradientNorm].norms) == 2
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * 0.5 * 0.1 * 0.5)
    assert [path.name for path in experiment.checkpoints.all()][-1] == "step-00000006"
    assert list((tmp_path / "run").glob("tensorboard/**/*tfevents*"))
    assert loads(dumps(trainer.callbacks, state=False), list[AbstractCallback])


def test_a_callback_can_change_the_training_through_its_context():
    def halve(epoch, step, performance_measures, context):
        for group in context.optimizer.param_groups:
            group["lr"] = 0.0

    trainer = ctc_trainer(halve, epochs=1, scheduler=None)
    weights = []
    trainer.add_callback(
        ("batch_end", lambda moment: weights.append(next(moment.context.model.parameters()).detach().clone()))
    )
    trainer.start_training()
    assert torch.equal(weights[0], weights[2])

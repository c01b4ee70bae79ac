"""The events of a real training: their order, and what is heard when it goes through, is stopped, or fails."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tiny import Diary, short_trainer

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, CallbackError, Event, Moment, Stop, stages_of
from sonosco_like.serialization import load, save, serializable, state
from sonosco_like.training import ModelTrainer

STAGES = stages_of(ModelTrainer)
NOT_STAGES = {"attach", "log", "error"}
OWN = {"init_start", "init_end"}  # heard by the trainer's own hooks only: nobody can be attached before it is made
OF_OUR_DATA = {f"{s}_{end}" for s in ("load_data", "process_data", "split_data") for end in ("start", "end")}
OF_STAGES = [event.value for event in Event if event.value not in NOT_STAGES | OWN | OF_OUR_DATA]


def test_the_enum_equals_the_declared_stages():
    assert {event.value for event in Event} - NOT_STAGES == {f"{s}_{end}" for s in STAGES for end in ("start", "end")}


def test_the_pseudo_code_names_every_stage():
    code = Event.__doc__.split("```")[1]
    assert {stage for stage in STAGES if stage not in re.sub(r"_(start|end)\b", "", code)} == set()


def test_an_event_is_its_text():
    assert Event("batch_end") is Event.BATCH_END
    assert Event.BATCH_END == "batch_end"


BATCH = [
    "fetch_start", "fetch_end", "batch_start", "forward_start", "forward_end", "loss_start", "loss_end",
    "backward_start", "backward_end", "optimizer_step_start", "clip_gradients_start", "clip_gradients_end",
    "optimizer_step_end",
]  # fmt: skip
VALIDATION = [
    "validation_start", "validation_batch_start", "prediction_start", "prediction_end", "validation_batch_end",
    "validation_end",
]  # fmt: skip


def test_a_run_is_heard_in_the_order_of_the_loop():
    ear = Diary()
    trainer = short_trainer(ear, epochs=1)
    trainer.start_training()
    assert ear.heard == [
        "build_model_start", "build_model_end", "build_optimizer_start", "build_optimizer_end",
        "build_scheduler_start", "build_scheduler_end", "attach",
        *["build_data_start", "build_data_end", "create_loader_start", "create_loader_end"] * 2,
        "build_tokenizer_start", "build_tokenizer_end",
        "training_start", "epoch_start",
        *BATCH, "batch_end",
        *BATCH, *VALIDATION, "batch_end",
        *BATCH, "batch_end",
        "fetch_start", "fetch_end",
        *VALIDATION, "epoch_end", "training_end",
    ]  # fmt: skip
    assert ear.closed == 1


def test_gradients_that_are_accumulated_are_used_every_few_batches_and_at_the_end():
    ear = Diary()
    short_trainer(ear, epochs=1, accumulate_gradients=2).start_training()
    assert ear.heard.count("backward_end") == 3
    assert ear.heard.count("optimizer_step_end") == 2


# What fires under which way of stopping


@serializable
class At(AbstractCallback):
    """Does something the first time an event is heard."""

    event: str
    fail: bool = False
    scope: str = "training"
    done: bool = state(False)

    def on_event(self, moment: Moment) -> None:
        if moment.event == self.event and not self.done:
            self.done = True
            raise RuntimeError("broken") if self.fail else Stop("enough", scope=self.scope)


@serializable
class AskForCheckpoints(AbstractCallback):
    """Has a checkpoint written after every batch."""

    path: str

    def __call__(self, epoch, step, performance_measures, context):
        context.save_checkpoint(self.path)


@pytest.fixture
def run(tmp_path):
    """A trainer with an ear that hears before and after what the test does: `run(At(...))` returns both."""

    def make(at: At):
        ear = Diary()
        return short_trainer(ear, at, AskForCheckpoints(path=str(tmp_path / "saved"))), ear

    return make


def unended(heard: list[str]) -> Counter:
    """Stages that were heard to start more often than to end."""
    counts = Counter(event.removesuffix("_start") for event in heard if event.endswith("_start"))
    counts.subtract(event.removesuffix("_end") for event in heard if event.endswith("_end"))
    return +counts


@pytest.mark.parametrize("event", ["attach", *OF_STAGES])
def test_a_stop_at_any_event_ends_the_run_and_every_stage_under_way(event, run):
    trainer, ear = run(At(event=event))
    trainer.start_training()
    own = [event.removesuffix("_start")] if event.endswith("_start") else []
    assert list(unended(ear.heard)) == own  # a stage whose start was stopped never began
    assert "error" not in ear.heard
    assert ear.closed == 1
    assert trainer.global_step < 6 or event == "training_end"


@pytest.mark.parametrize("event", OF_STAGES)
def test_after_a_stop_at_any_event_the_run_can_be_continued_to_its_end(event, run):
    trainer, _ = run(At(event=event))
    trainer.start_training()
    trainer.continue_training()
    assert (trainer.epoch, trainer.global_step) == (2, 6)


@pytest.mark.parametrize("event", ["attach", *OF_STAGES])
def test_a_failure_at_any_event_is_heard_as_an_error_and_named(event, run):
    trainer, ear = run(At(event=event, fail=True))
    with pytest.raises(CallbackError, match=f"At failed at {event}: RuntimeError: broken"):
        trainer.start_training()
    assert ear.heard[-1] == "error"
    assert ear.heard.count("error") == 1
    assert ear.closed == 1
    under_way = unended(ear.heard)
    if event not in ("attach", "training_end") and not event.startswith(("build_", "create_")):
        assert under_way["training"] == 1  # its end is not heard: it was not done


@pytest.mark.parametrize("event", ["batch_start", "forward_start", "loss_end", "validation_end", "batch_end"])
def test_a_stop_of_the_batch_goes_on_with_the_next(event, run):
    trainer, ear = run(At(event=event, scope="batch"))
    trainer.start_training()
    assert (trainer.epoch, trainer.global_step) == (2, 6)
    assert ear.heard.count("epoch_start") == ear.heard.count("epoch_end") == 2


@pytest.mark.parametrize("event", ["backward_end", "optimizer_step_start", "clip_gradients_start"])
def test_a_batch_that_was_stopped_before_its_step_does_not_keep_later_ones_from_theirs(event, run):
    trainer, ear = run(At(event=event, scope="batch"))
    trainer.start_training()
    assert ear.heard.count("backward_end") == 6
    assert ear.heard.count("clip_gradients_end") == 5


@pytest.mark.parametrize("event", ["epoch_start", "fetch_end", "batch_start", "loss_end", "batch_end"])
def test_a_stop_of_the_epoch_goes_on_with_the_next(event, run):
    trainer, ear = run(At(event=event, scope="epoch"))
    trainer.start_training()
    assert trainer.epoch == 2
    assert ear.heard.count("epoch_start") == 2
    assert ear.heard.count("training_end") == 1
    assert ear.heard.count("batch_start") in (3, 4)


def test_a_stop_of_the_batch_at_every_start_of_an_epoch_ends_each_epoch():
    def stop(trainer):
        raise Stop("not now", scope="batch")

    trainer = short_trainer(("pre-epoch", stop))
    trainer.start_training()
    assert (trainer.epoch, trainer.global_step) == (2, 0)


def test_a_stop_of_the_batch_at_every_start_of_a_fetch_leaves_out_every_batch():
    def stop(trainer):
        raise Stop("not now", scope="batch")

    ear = Diary()
    trainer = short_trainer(("pre-fetch", stop), ear)
    trainer.start_training()
    assert (trainer.epoch, trainer.global_step) == (2, 6)
    assert "batch_start" not in ear.heard


def test_stop_training_ends_the_run_after_the_batch_under_way():
    ear = Diary()
    trainer = short_trainer(ear)
    trainer.add_callback(("pre-loss", lambda trainer: trainer.stop_training("seen enough")))
    trainer.start_training()
    assert trainer.global_step == 1
    assert ear.heard[-3:] == ["batch_end", "epoch_end", "training_end"]


def test_a_failure_in_close_does_not_keep_others_from_closing(caplog):
    class Rude(AbstractCallback):
        def close(self):
            raise OSError("disk full")

    ear = Diary()
    short_trainer(Rude(), ear).start_training()
    assert ear.closed == 1
    assert "Rude failed in close()" in caplog.text


# What the trainer adds to the mechanism


def test_the_call_after_every_batch_has_epoch_step_measures_and_trainer():
    seen = []
    trainer = short_trainer(lambda epoch, step, measures, context: seen.append((epoch, step, len(measures), context)))
    trainer.start_training()
    assert [row[:2] for row in seen] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert all(row[3] is trainer for row in seen)
    assert seen[0][2] == 3  # loss, gradient norm, distance; validation comes after the second batch
    assert seen[1][2] == 5


def test_pairs_change_arguments_and_results_of_the_trainers_stages():
    seen = []
    trainer = short_trainer(
        ("pre-loss", lambda trainer, output, batch: (output * 0, (batch[0], 0 * batch[1] + 3))),
        ("post-loss", lambda trainer, return_value: return_value + 1),
        ("post-loss", lambda trainer, return_value: seen.append(return_value.item()) or return_value),
        val_data_loader=None,
    )
    trainer.start_training()
    assert seen == [10.0] * 6  # (0 - 3) squared, and one


def test_hooks_of_a_trainer_class_are_chained_by_inheritance(capsys):
    class TrainerA(ModelTrainer):
        def on_epoch_end(self, moment):
            print("Trainer A post epoch callback")

    class TrainerB(TrainerA):
        class_callbacks = [("post-epoch", lambda self: print("Trainer B post epoch callback 1"))]  # noqa: RUF012

        def on_epoch_end(self, moment):
            print("Trainer B post epoch callback 2")

    short_trainer(cls=TrainerB, epochs=1).start_training()
    assert capsys.readouterr().out.splitlines() == [
        "Trainer A post epoch callback",
        "Trainer B post epoch callback 1",
        "Trainer B post epoch callback 2",
    ]


class Verifying(ModelTrainer):
    """Fires an event of its own before each loss."""

    events = ("verify_train_batch",)

    def on_loss_start(self, moment):
        self.fire("verify_train_batch", inputs=moment.args["batch"][0])


class Verifier(AbstractCallback):
    """Hears it."""

    def on_verify_train_batch(self, moment):
        assert moment.args["inputs"].shape[1] == 4
        SHAPES.append(tuple(moment.args["inputs"].shape))


SHAPES: list[tuple[int, ...]] = []


def test_a_trainer_fires_events_of_its_own():
    SHAPES.clear()
    short_trainer(Verifier(), cls=Verifying).start_training()
    assert SHAPES == [(8, 4), (8, 4), (3, 4)] * 2


def test_an_event_that_the_trainer_does_not_fire_is_refused():
    trainer = short_trainer(Verifier())
    with pytest.raises(UsageError, match="on_verify_train_batch would never be called"):
        trainer.start_training()
    assert trainer.global_step == 0


@serializable
def halved(trainer, return_value):
    """Half of the loss."""
    return return_value / 2


def test_a_pair_with_a_registered_function_is_saved_with_the_trainer(tmp_path):
    trainer = short_trainer(("post-loss", halved))
    save(trainer, tmp_path / "saved")
    assert load(tmp_path / "saved").callbacks == [("post-loss", halved)]


def test_a_callback_that_is_added_in_mid_run_listens_from_then_on():
    ear = Diary()
    trainer = short_trainer()
    trainer.set_callbacks([("post-epoch", lambda trainer: trainer.add_callback(ear) if trainer.epoch == 0 else None)])
    trainer.start_training()
    assert ear.heard.count("batch_end") == 3
    assert ear.closed == 1


def test_time_spent_in_callbacks_is_known():
    trainer = short_trainer(Diary())
    trainer.start_training()
    assert trainer.seconds_in_callbacks["Diary"] > 0

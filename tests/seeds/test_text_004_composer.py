"""Text 004: what is logged and where it goes, one method per event or one for all, durations as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from seed_run import ctc_trainer
from tiny import Diary

from sonosco_like import AbstractCallback, Event, serializable
from sonosco_like.callbacks import LRMonitor, MetricsFile, SpeedMonitor, WandbDestination
from sonosco_like.events import Moment


@serializable
class EpochMonitor(AbstractCallback):
    """One method per event."""

    def on_epoch_start(self, moment: Moment) -> None:
        print(f"Epoch: {moment.context.epoch}")


@serializable
class EpochMonitorOfAllEvents(AbstractCallback):
    """The same with one method for all events."""

    def on_event(self, moment: Moment) -> None:
        if moment.event == Event.EPOCH_START:
            print(f"Epoch: {moment.context.epoch}")


@pytest.mark.parametrize("monitor", [EpochMonitor, EpochMonitorOfAllEvents])
def test_one_method_per_event_and_one_for_all_do_the_same(monitor, capsys):
    ctc_trainer(monitor()).start_training()
    assert capsys.readouterr().out == "Epoch: 0\nEpoch: 1\n"


def test_speed_and_learning_rate_are_logged_to_a_destination(tmp_path):
    trainer = ctc_trainer(
        SpeedMonitor(window=100, every="1ba"),
        LRMonitor(every="1ba"),
        MetricsFile(folder=tmp_path),
        epochs=5,
        max_duration="1ep",
    )
    trainer.start_training()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [row["learning_rate"] for row in rows] == sorted(row["learning_rate"] for row in rows)
    assert all(row["speed/batches_per_second"] > 0 for row in rows)
    assert all(0 <= row["speed/waiting_share"] <= 1 for row in rows)


def test_the_destination_can_be_weights_and_biases(tmp_path):
    wandb = pytest.importorskip("wandb")
    callbacks = [SpeedMonitor(every="1ba"), LRMonitor(every="1ba"), WandbDestination(folder=tmp_path)]
    ctc_trainer(*callbacks, max_duration="1ep").start_training()
    wandb.teardown()  # waits until everything is written
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*.wandb"))
    assert b"learning_rate" in written
    assert b"speed/batches_per_second" in written


def test_callbacks_say_what_and_destinations_say_where(tmp_path):
    nowhere = ctc_trainer(LRMonitor(every="1ba"))
    nowhere.start_training()
    unheard = ctc_trainer(MetricsFile(folder=tmp_path))
    unheard.start_training()
    assert (tmp_path / "metrics.jsonl").read_text() == ""


@pytest.mark.parametrize(
    ("duration", "steps"), [("1ep", 3), ("2ep", 6), ("4ba", 4), ("0.5dur", 3), ("90min", 6), ("0.001s", 1)]
)
def test_a_training_lasts_as_long_as_a_text_says(duration, steps):
    trainer = ctc_trainer(max_duration=duration)
    trainer.start_training()
    assert trainer.global_step == steps


COMPOSER = {  # every point of Composer's loop and ours of the same place
    "INIT": Event.ATTACH,
    "FIT_START": Event.TRAINING_START,
    "EPOCH_START": Event.EPOCH_START,
    "BEFORE_DATALOADER": Event.FETCH_START,
    "AFTER_DATALOADER": Event.FETCH_END,
    "BATCH_START": Event.BATCH_START,
    "BEFORE_TRAIN_BATCH": Event.BATCH_START,
    "BEFORE_FORWARD": Event.FORWARD_START,
    "AFTER_FORWARD": Event.FORWARD_END,
    "BEFORE_LOSS": Event.LOSS_START,
    "AFTER_LOSS": Event.LOSS_END,
    "BEFORE_BACKWARD": Event.BACKWARD_START,
    "AFTER_BACKWARD": Event.BACKWARD_END,
    "AFTER_TRAIN_BATCH": Event.OPTIMIZER_STEP_END,
    "BATCH_END": Event.BATCH_END,
    "BATCH_CHECKPOINT": Event.CHECKPOINT_END,
    "EVAL_START": Event.VALIDATION_START,
    "EVAL_BATCH_START": Event.VALIDATION_BATCH_START,
    "EVAL_BEFORE_FORWARD": Event.VALIDATION_BATCH_START,
    "EVAL_AFTER_FORWARD": Event.PREDICTION_START,
    "EVAL_BATCH_END": Event.VALIDATION_BATCH_END,
    "EVAL_END": Event.VALIDATION_END,
    "EPOCH_END": Event.EPOCH_END,
    "FIT_END": Event.TRAINING_END,
}


@serializable
class SaveAtStart(AbstractCallback):
    """Asks for a checkpoint when an epoch starts."""

    path: Path = Path()

    def on_epoch_start(self, moment: Moment) -> None:
        moment.context.save_checkpoint(self.path)


def test_every_point_of_the_loop_is_heard_in_the_order_of_the_text(tmp_path):
    trainer = ctc_trainer(ear := Diary(), SaveAtStart(path=tmp_path / "saved"), epochs=1)
    trainer.start_training()
    first = {event: ear.heard.index(event) for event in reversed(ear.heard)}
    assert [name for name, event in COMPOSER.items() if event not in first] == []
    places = [first[event] for event in COMPOSER.values() if event is not Event.CHECKPOINT_END]
    assert places == sorted(places)


def test_predictions_asked_for_are_heard_too():
    trainer = ctc_trainer(ear := Diary(), epochs=1)
    trainer.start_training()
    ear.heard.clear()
    trainer.predict(trainer.test_data_loader)
    assert ear.heard == ["prediction_start", "prediction_end"] * 2

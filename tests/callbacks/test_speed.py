"""SpeedMonitor and EpochTimeEstimate: how fast a training is, and how much time is left."""

from __future__ import annotations

import itertools
import logging

import pytest
import torch
from tiny_speech import Utterances, logged, speech_trainer, whole_and_resumed

from sonosco_like.callbacks import EpochTimeEstimate, SpeedMonitor, speed
from sonosco_like.callbacks.speed import format_duration
from sonosco_like.errors import UsageError
from sonosco_like.serialization import load


@pytest.fixture
def time_passes(monkeypatch):
    """A clock that only goes when it is told to: `time_passes(seconds)`."""
    now = [100.0]
    monkeypatch.setattr(speed.time, "perf_counter", lambda: now[0])

    def go(seconds: float) -> None:
        now[0] += seconds

    return go


def test_speed_counts_batches_utterances_audio_and_waiting(time_passes):
    trainer = speech_trainer(SpeedMonitor(every="4ba", window=4))
    trainer.add_callback(("pre-fetch", lambda trainer: time_passes(1.0)))
    trainer.add_callback(("pre-forward", lambda trainer: time_passes(3.0)))
    trainer.add_callback(("pre-validation_batch", lambda trainer: time_passes(50.0)))
    trainer.add_callback(("pre-checkpoint", lambda trainer: time_passes(500.0)))
    log = logged(trainer)
    trainer.start_training()
    assert [step for step, _ in log] == [4, 8, 12]
    for _, values in log:
        assert values == pytest.approx(
            {
                "speed/batches_per_second": 0.25,
                "speed/utterances_per_second": 0.5,
                "speed/audio_seconds_per_second": 0.55,
                "speed/waiting_share": 0.25,
            }
        )


def test_speed_is_that_of_the_last_batches(time_passes):
    paces = itertools.chain([8.0] * 6, [2.0] * 6)
    trainer = speech_trainer(SpeedMonitor(every="6ba", window=5), val_data_loader=None)
    trainer.add_callback(("pre-forward", lambda trainer: time_passes(next(paces))))
    log = logged(trainer)
    trainer.start_training()
    assert [values["speed/batches_per_second"] for _, values in log] == pytest.approx([1 / 8, 1 / 2])


def test_speed_of_batches_that_are_pairs_of_tensors(time_passes):
    pairs = [(torch.ones(3, 2), torch.ones(3, 1))] * 2
    monitor = SpeedMonitor(every="1ba")
    trainer = speech_trainer(
        monitor, model=torch.nn.Linear(2, 1), loss=torch.nn.functional.mse_loss, train_data_loader=pairs,
        val_data_loader=None, metrics=[], decoder=None, epochs=1,
    )  # fmt: skip
    trainer.add_callback(("pre-forward", lambda trainer: time_passes(1.0)))
    trainer.start_training()
    assert monitor.measure(trainer) == pytest.approx(
        {"speed/batches_per_second": 1.0, "speed/utterances_per_second": 3.0, "speed/waiting_share": 0.0}
    )


def test_the_time_of_an_epoch_is_estimated_from_the_batches_so_far(time_passes, caplog):
    trainer = speech_trainer(EpochTimeEstimate(every="3ba"), val_data_loader=None)
    trainer.add_callback(("pre-forward", lambda trainer: time_passes(30.0)))
    log = logged(trainer)
    with caplog.at_level(logging.INFO):
        trainer.start_training()
    assert [step for step, _ in log] == [3, 6, 9, 12]
    assert log[0][1] == {
        "time/epoch_seconds": 120.0,
        "time/epoch_seconds_left": 30.0,
        "time/training_seconds_left": 270.0,
    }
    assert log[3][1]["time/training_seconds_left"] == 0.0
    assert "An epoch takes 2:00. Left: 0:30 of epoch 1, 4:30 of the training." in caplog.text


class Endless:
    """A loader that does not know how many batches it has."""

    def __iter__(self):
        return iter(Utterances())


def test_an_epoch_of_unknown_length_is_counted_once(time_passes):
    trainer = speech_trainer(EpochTimeEstimate(every="2ba"), train_data_loader=Endless(), val_data_loader=Utterances())
    trainer.add_callback(("pre-forward", lambda trainer: time_passes(1.0)))
    log = logged(trainer)
    trainer.start_training()
    assert [step for step, _ in log] == [6, 8, 10, 12]
    assert {values["time/epoch_seconds"] for _, values in log} == {4.0}


def test_the_pace_of_a_resumed_epoch_counts_only_its_own_batches(tmp_path, time_passes):
    whole_and_resumed(2, tmp_path, EpochTimeEstimate(every="3ba"), val_data_loader=None)
    resumed = load(tmp_path / "at-2")
    resumed.add_callback(("pre-forward", lambda trainer: time_passes(1.0)))
    log = logged(resumed)
    resumed.continue_training()
    assert log[0] == (
        3,
        {"time/epoch_seconds": 4.0, "time/epoch_seconds_left": 1.0, "time/training_seconds_left": 9.0},
    )


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (61.4, "1:01"), (3599.6, "1:00:00"), (36005, "10:00:05")])
def test_durations_look_like_a_clock(seconds, text):
    assert format_duration(seconds) == text


def test_a_window_of_nothing_is_refused():
    with pytest.raises(UsageError, match="at least 1 batch"):
        SpeedMonitor(window=0)

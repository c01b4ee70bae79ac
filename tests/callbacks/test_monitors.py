"""Speed, time left, learning rates, memory: what is logged, and when."""

from __future__ import annotations

import itertools
import logging

import pytest
import torch
from tiny_run import TinyLoader, logged, make_trainer, whole_and_resumed

from sonosco_like.callbacks import EpochTimeEstimate, LRMonitor, MemoryMonitor, SpeedMonitor, speed
from sonosco_like.callbacks.monitors import memory_in_use
from sonosco_like.callbacks.speed import clock
from sonosco_like.errors import UsageError
from sonosco_like.optim import SGD, ExponentialLR
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
    trainer = make_trainer(SpeedMonitor(every="4ba", window=4))
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
    trainer = make_trainer(SpeedMonitor(every="6ba", window=5), val_data_loader=None)
    trainer.add_callback(("pre-forward", lambda trainer: time_passes(next(paces))))
    log = logged(trainer)
    trainer.start_training()
    assert [values["speed/batches_per_second"] for _, values in log] == pytest.approx([1 / 8, 1 / 2])


def test_speed_of_batches_that_are_pairs_of_tensors(time_passes):
    pairs = [(torch.ones(3, 2), torch.ones(3, 1))] * 2
    monitor = SpeedMonitor(every="1ba")
    trainer = make_trainer(
        monitor, model=torch.nn.Linear(2, 1), loss=torch.nn.functional.mse_loss, train_data_loader=pairs,
        val_data_loader=None, metrics=[], decoder=None, epochs=1,
    )  # fmt: skip
    trainer.add_callback(("pre-forward", lambda trainer: time_passes(1.0)))
    trainer.start_training()
    assert monitor.measured(trainer) == pytest.approx(
        {"speed/batches_per_second": 1.0, "speed/utterances_per_second": 3.0, "speed/waiting_share": 0.0}
    )


def test_the_learning_rate_of_one_group_and_of_several():
    trainer = make_trainer(
        LRMonitor(every="4ba"), optimizer=SGD(lr=1.0), scheduler=ExponentialLR(gamma=0.5), val_data_loader=None
    )
    log = logged(trainer)
    trainer.start_training()
    assert log == [(step, {"learning_rate": 0.5**step}) for step in (4, 8, 12)]


def test_the_learning_rates_of_named_and_of_numbered_groups():
    model = torch.nn.Linear(2, 1)
    groups = [{"params": [model.weight], "lr": 0.5, "name": "weights"}, {"params": [model.bias], "lr": 0.25}]
    trainer = make_trainer(
        LRMonitor(every="1ep"), model=model, loss=torch.nn.functional.mse_loss, optimizer=torch.optim.SGD(groups),
        train_data_loader=[(torch.ones(3, 2), torch.ones(3, 1))], val_data_loader=None, metrics=[], epochs=1,
    )  # fmt: skip
    log = logged(trainer)
    trainer.start_training()
    assert log == [(1, {"learning_rate/weights": 0.5, "learning_rate/1": 0.25})]


def test_memory_is_logged_in_mebibytes():
    trainer = make_trainer(MemoryMonitor(every="5ba"), val_data_loader=None)
    log = logged(trainer)
    trainer.start_training()
    assert [step for step, _ in log] == [5, 10]
    values = log[0][1]
    assert 50 < values["memory/process"] <= values["memory/process_peak"] < 100_000


def test_memory_in_use_grows_with_what_is_held():
    before = memory_in_use(torch.device("cpu"))["memory/process"]
    held = torch.ones(32 * 2**20 // 4)
    assert memory_in_use(torch.device("cpu"))["memory/process"] - before > 24
    del held


def test_the_time_of_an_epoch_is_estimated_from_the_batches_so_far(time_passes, caplog):
    trainer = make_trainer(EpochTimeEstimate(every="3ba"), val_data_loader=None)
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
    assert "An epoch takes 2:00. Left: 0:30 of epoch 0, 4:30 of the training." in caplog.text


@pytest.mark.parametrize("cls", [SpeedMonitor, LRMonitor, MemoryMonitor, EpochTimeEstimate])
def test_every_monitor_can_log_once_an_epoch(cls):
    trainer = make_trainer(cls(every="2ep"), epochs=4, val_data_loader=None)
    log = logged(trainer)
    trainer.start_training()
    assert [step for step, _ in log] == [8, 16]


class Endless:
    """A loader that does not know how many batches it has."""

    def __iter__(self):
        return iter(TinyLoader())


def test_an_epoch_of_unknown_length_is_counted_once(time_passes):
    trainer = make_trainer(EpochTimeEstimate(every="2ba"), train_data_loader=Endless(), val_data_loader=TinyLoader())
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
    assert clock(seconds) == text


def test_a_window_of_nothing_is_refused():
    with pytest.raises(UsageError, match="at least 1 batch"):
        SpeedMonitor(window=0)

"""Measures, learning rates, memory and the time in callbacks: what is logged, and when."""

from __future__ import annotations

import time

import pytest
import torch
from tiny import SaveAt
from tiny_speech import logged, speech_trainer, whole_and_resumed

from sonosco_like.callbacks import (
    CallbackTimes,
    EarlyStopping,
    EpochTimeEstimate,
    LRMonitor,
    MemoryMonitor,
    SpeedMonitor,
)
from sonosco_like.callbacks.monitors import LogMeasures, memory_in_use
from sonosco_like.events import AbstractCallback, Stop
from sonosco_like.optim import SGD, ExponentialLR
from sonosco_like.serialization import load, serializable, state


@serializable
class Logged(AbstractCallback):
    """Keeps what is logged, in the order in which it comes."""

    rows: list[tuple[int, dict[str, float]]] = state([])

    def on_log(self, moment):
        self.rows.append((moment.args["step"], moment.args["values"]))


@serializable
class StopAt(AbstractCallback):
    at: int

    def __call__(self, epoch, step, performance_measures, context):
        if context.global_step == self.at:
            raise Stop("enough")


def steps_with(rows, name):
    return [step for step, values in rows if name in values]


def logged_measures(every, **fields):
    trainer = speech_trainer(LogMeasures(every=every), ears := Logged(), **fields)
    trainer.start_training()
    return ears.rows, trainer


def test_training_is_logged_at_the_interval_and_validation_when_it_happens():
    rows, _ = logged_measures("3ba", test_step=None, train_data_loader=speech_trainer().train_data_loader)
    assert steps_with(rows, "loss") == [3, 4, 6, 8, 9, 12]
    assert steps_with(rows, "val_loss") == [4, 8, 12]


def test_training_and_validation_can_be_compared_at_the_same_step():
    rows, _ = logged_measures("1ep", test_step=2)
    assert steps_with(rows, "loss") == steps_with(rows, "val_loss") == [2, 4, 6, 8, 10, 12]


def test_no_value_is_logged_twice_at_one_step():
    rows, _ = logged_measures("1ba", test_step=1)
    for name in ("loss", "val_loss", "val_word_error_rate", "gradient_norm"):
        assert steps_with(rows, name) == list(range(1, 13))


def test_what_is_logged_is_what_performance_measures_say():
    rows, trainer = logged_measures("1ba")
    last = {name: value for step, values in rows if step == 12 for name, value in values.items()}
    assert last == dict(trainer.performance_measures)


def test_epochs_are_logged_without_any_validation():
    rows, _ = logged_measures("1ep", val_data_loader=None)
    assert [step for step, _ in rows] == [4, 8, 12]


def test_a_stopped_run_logs_no_step_that_an_unbroken_one_would_not():
    ears = Logged()
    speech_trainer(LogMeasures(every="4ba"), ears, StopAt(at=3), val_data_loader=None).start_training()
    assert ears.rows == []


@pytest.mark.parametrize("at", [3, 4, 6, 12])
def test_a_resumed_run_logs_what_the_unbroken_one_does(at, tmp_path):
    whole, resumed = whole_and_resumed(at, tmp_path, LogMeasures(every="3ba"), Logged())
    assert resumed.callbacks[1].rows == whole.callbacks[1].rows


def test_the_learning_rate_of_one_group_and_of_several():
    trainer = speech_trainer(
        LRMonitor(every="4ba"), optimizer=SGD(lr=1.0), scheduler=ExponentialLR(gamma=0.5), val_data_loader=None
    )
    log = logged(trainer)
    trainer.start_training()
    assert log == [(step, {"learning_rate": 0.5**step}) for step in (4, 8, 12)]


def test_the_learning_rates_of_named_and_of_numbered_groups():
    model = torch.nn.Linear(2, 1)
    groups = [{"params": [model.weight], "lr": 0.5, "name": "weights"}, {"params": [model.bias], "lr": 0.25}]
    trainer = speech_trainer(
        LRMonitor(every="1ep"), model=model, loss=torch.nn.functional.mse_loss, optimizer=torch.optim.SGD(groups),
        train_data_loader=[(torch.ones(3, 2), torch.ones(3, 1))], val_data_loader=None, metrics=[], epochs=1,
    )  # fmt: skip
    log = logged(trainer)
    trainer.start_training()
    assert log == [(1, {"learning_rate/weights": 0.5, "learning_rate/1": 0.25})]


def test_memory_is_logged_in_mebibytes():
    trainer = speech_trainer(MemoryMonitor(every="5ba"), val_data_loader=None)
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


@pytest.mark.parametrize("cls", [SpeedMonitor, LRMonitor, MemoryMonitor, EpochTimeEstimate])
def test_every_monitor_can_log_once_an_epoch(cls):
    trainer = speech_trainer(cls(every="2ep"), epochs=4, val_data_loader=None)
    log = logged(trainer)
    trainer.start_training()
    assert [step for step, _ in log] == [8, 16]


@serializable
class Sleeper(AbstractCallback):
    """Takes its time."""

    def __call__(self, epoch, step, performance_measures, context):
        time.sleep(0.01)


def test_the_slowest_callback_is_printed_first_with_its_share(capsys):
    speech_trainer(EarlyStopping(patience=50), Sleeper(), CallbackTimes()).start_training()
    lines = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    rows = [[cell.strip() for cell in line.split("│")[1:4]] for line in lines]
    seconds = {name: float(spent) for name, spent, _ in rows}
    assert {"EarlyStopping", "CallbackTimes", "Sleeper"} <= set(seconds)
    assert list(seconds.values()) == sorted(seconds.values(), reverse=True)
    assert seconds["Sleeper"] >= 0.12
    assert all(share.endswith("%") for _, _, share in rows)


def test_times_are_logged_on_request():
    rows = logged(trainer := speech_trainer(Sleeper(), CallbackTimes(every="1ep")))
    trainer.start_training()
    slept = [values["callback_seconds/Sleeper"] for _, values in rows if "callback_seconds/Sleeper" in values]
    assert len(slept) == 3
    assert slept == sorted(slept)


def test_a_resumed_run_goes_on_counting(tmp_path):
    trainer = speech_trainer(Sleeper(), CallbackTimes(), SaveAt(at=4, path=tmp_path / "saved"))
    trainer.start_training()
    resumed = load(tmp_path / "saved")
    before = dict(resumed.callbacks[1].seconds)
    assert before["Sleeper"] >= 0.04
    resumed.continue_training()
    assert resumed.callbacks[1].totals()["Sleeper"] == pytest.approx(
        before["Sleeper"] + resumed.seconds_in_callbacks["Sleeper"]
    )


def test_callbacks_that_come_later_are_counted_and_nothing_is_counted_twice():
    times = CallbackTimes()

    def add(moment):
        if moment.context.epoch == 1:
            moment.context.add_callback(Sleeper())

    trainer = speech_trainer(times, ("epoch_start", add))
    trainer.start_training()
    slept = times.totals()["Sleeper"]
    assert 0.08 <= slept < 2 * trainer.seconds_in_callbacks["Sleeper"]

"""CallbackTimes: a table of what callbacks cost, over resumes too."""

from __future__ import annotations

import time

import pytest
from tiny_run import SaveAt, logged, make_trainer

from sonosco_like.callbacks import CallbackTimes, EarlyStopping
from sonosco_like.events import AbstractCallback
from sonosco_like.serialization import load, serializable


@serializable
class Sleeper(AbstractCallback):
    """Takes its time."""

    def __call__(self, epoch, step, performance_measures, context):
        time.sleep(0.01)


def test_the_slowest_callback_is_printed_first_with_its_share(capsys):
    make_trainer(EarlyStopping(patience=50), Sleeper(), CallbackTimes()).start_training()
    lines = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    rows = [[cell.strip() for cell in line.split("│")[1:4]] for line in lines]
    seconds = {name: float(spent) for name, spent, _ in rows}
    assert {"EarlyStopping", "CallbackTimes", "Sleeper"} <= set(seconds)
    assert list(seconds.values()) == sorted(seconds.values(), reverse=True)
    assert seconds["Sleeper"] >= 0.12
    assert all(share.endswith("%") for _, _, share in rows)


def test_times_are_logged_on_request():
    rows = logged(trainer := make_trainer(Sleeper(), CallbackTimes(every="1ep")))
    trainer.start_training()
    slept = [values["callback_seconds/Sleeper"] for _, values in rows if "callback_seconds/Sleeper" in values]
    assert len(slept) == 3
    assert slept == sorted(slept)


def test_a_resumed_run_goes_on_counting(tmp_path):
    trainer = make_trainer(Sleeper(), CallbackTimes(), SaveAt(at=4, path=tmp_path / "saved"))
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

    trainer = make_trainer(times, ("epoch_start", add))
    trainer.start_training()
    slept = times.totals()["Sleeper"]
    assert 0.08 <= slept < 2 * trainer.seconds_in_callbacks["Sleeper"]

"""LogMeasures: which steps are logged, with which values, also after a resume."""

from __future__ import annotations

import pytest
from tiny_run import make_trainer, whole_and_resumed

from sonosco_like.callbacks.logging_measures import LogMeasures
from sonosco_like.events import AbstractCallback, Stop
from sonosco_like.serialization import serializable, state


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


def logged(every, **fields):
    trainer = make_trainer(LogMeasures(every=every), ears := Logged(), **fields)
    trainer.start_training()
    return ears.rows, trainer


def test_training_is_logged_at_the_interval_and_validation_when_it_happens():
    rows, _ = logged("3ba", test_step=None, train_data_loader=make_trainer().train_data_loader)
    assert steps_with(rows, "loss") == [3, 4, 6, 8, 9, 12]
    assert steps_with(rows, "val_loss") == [4, 8, 12]


def test_training_and_validation_can_be_compared_at_the_same_step():
    rows, _ = logged("1ep", test_step=2)
    assert steps_with(rows, "loss") == steps_with(rows, "val_loss") == [2, 4, 6, 8, 10, 12]


def test_no_value_is_logged_twice_at_one_step():
    rows, _ = logged("1ba", test_step=1)
    for name in ("loss", "val_loss", "val_word_error_rate", "gradient_norm"):
        assert steps_with(rows, name) == list(range(1, 13))


def test_what_is_logged_is_what_performance_measures_say():
    rows, trainer = logged("1ba")
    last = {name: value for step, values in rows if step == 12 for name, value in values.items()}
    assert last == dict(trainer.performance_measures)


def test_epochs_are_logged_without_any_validation():
    rows, _ = logged("1ep", val_data_loader=None)
    assert [step for step, _ in rows] == [4, 8, 12]


def test_a_stopped_run_logs_no_step_that_an_unbroken_one_would_not():
    ears = Logged()
    make_trainer(LogMeasures(every="4ba"), ears, StopAt(at=3), val_data_loader=None).start_training()
    assert ears.rows == []


@pytest.mark.parametrize("at", [3, 4, 6, 12])
def test_a_resumed_run_logs_what_the_unbroken_one_does(at, tmp_path):
    whole, resumed = whole_and_resumed(at, tmp_path, LogMeasures(every="3ba"), Logged())
    assert resumed.callbacks[1].rows == whole.callbacks[1].rows

"""ConsoleLog: a line per logged step."""

from __future__ import annotations

import pytest
from tiny_run import make_trainer

from sonosco_like.callbacks.destinations import ConsoleLog
from sonosco_like.callbacks.logging_measures import LogMeasures
from sonosco_like.callbacks.monitors import LRMonitor


def lines_of(capfd, *callbacks, **fields):
    trainer = make_trainer(*callbacks, **fields)
    trainer.start_training()
    return capfd.readouterr().out.splitlines(), trainer


def test_everything_logged_at_a_step_is_one_line(capfd):
    lines, trainer = lines_of(capfd, LogMeasures(every="2ba"), LRMonitor(every="2ba"), ConsoleLog())
    assert [line.split()[:4] for line in lines] == [
        ["epoch", str((step - 1) // 4), "step", str(step)] for step in range(2, 13, 2)
    ]
    measures = trainer.performance_measures
    for words in (f"val_loss {measures['val_loss']:.4g}", "learning_rate 0.01", "val_wer "):
        assert words in lines[-1]


def test_only_what_is_wanted_is_printed(capfd):
    lines, _ = lines_of(capfd, LogMeasures(every="1ba"), ConsoleLog(only=["val_l*"]))
    assert len(lines) == 6
    assert all(line.split()[4] == "val_loss" and len(line.split()) == 6 for line in lines)


def test_a_step_is_printed_before_the_next_batch(capfd):
    seen = []

    def look(moment):
        seen.append(capfd.readouterr().out.count("\n"))

    lines_of(capfd, LogMeasures(every="1ba"), ConsoleLog(), ("batch_start", look), val_data_loader=None)
    assert seen == [0] + [1] * 11


def test_what_was_logged_before_an_error_is_still_printed(capfd):
    def fail(epoch, step, performance_measures, context):
        raise RuntimeError("broken")

    with pytest.raises(Exception, match="broken"):
        lines_of(capfd, LogMeasures(every="1ba"), ConsoleLog(), fail)
    assert capfd.readouterr().out.startswith("epoch 0 step 1 loss ")

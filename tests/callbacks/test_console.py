"""ProgressBar, PrintMetrics and ConsoleLog: the lines and bars in a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_speech import Utterances, speech_trainer, whole_and_resumed

from sonosco_like.callbacks import speed
from sonosco_like.callbacks.console import ConsoleLog, PrintMetrics, ProgressBar
from sonosco_like.callbacks.monitors import LogMeasures, LRMonitor
from sonosco_like.serialization import serializable

IN_A_TERMINAL = """
from tiny_speech import speech_trainer
from sonosco_like.callbacks.console import ProgressBar
{before}
speech_trainer(ProgressBar(refresh=0.0), *{callbacks}).start_training()
"""


@serializable
class LoaderWithoutLength:
    """Batches nobody has counted."""

    def __iter__(self):
        yield from Utterances()


def in_a_terminal(callbacks="[]", before=""):
    """What a run writes to a real terminal, and its exit code."""
    main, side = pty.openpty()
    code = IN_A_TERMINAL.format(callbacks=callbacks, before=before)
    here = Path(__file__).parent
    paths = os.pathsep.join(map(str, (here, here.parent)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "COLUMNS": "160"}
    environment |= {"TERM": "xterm-256color"}
    process = subprocess.Popen([sys.executable, "-c", code], stderr=side, stdout=side, env=environment)
    os.close(side)
    written = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:  # how a pseudo-terminal says that nobody writes any more
            break
        if not chunk:
            break
        written += chunk
    os.close(main)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.decode()), process.wait(), written


def test_without_a_terminal_there_are_plain_lines(capfd):
    speech_trainer(ProgressBar(every="1ba")).start_training()
    lines = capfd.readouterr().err.splitlines()
    assert not any("\x1b" in line or "\r" in line for line in lines)
    assert lines[0].startswith("epoch 1/3, step 1/4, loss ")
    assert re.search(r"wer \d+\.\d %.*, \d+ s audio/s, [\d:]+ left", lines[-1])
    assert sum("done" in line for line in lines) == 3


def test_lines_come_at_the_interval_and_at_epoch_ends(capfd):
    speech_trainer(ProgressBar(every="3ba"), test_step=None).start_training()
    places = [re.match(r"epoch (\d)/3, step (\d)/4(, done)?", line) for line in capfd.readouterr().err.splitlines()]
    assert [(m[1], m[2], bool(m[3])) for m in places if m] == [
        ("1", "3", False), ("1", "4", True),
        ("2", "2", False), ("2", "4", True),
        ("3", "1", False), ("3", "4", False), ("3", "4", True),
    ]  # fmt: skip


def test_a_terminal_shows_bars_for_training_and_validation():
    text, code, raw = in_a_terminal()
    assert code == 0, text
    assert b"\x1b[" in raw
    assert re.search(r"epoch 1/3 .*4/4 loss ", text)
    assert re.search(r"validation .*2/2", text)
    assert re.search(r"val_wer \d+\.\d %, \d+ s audio/s, [\d:]+ left", text)
    assert text.count(", done, ") == 3


def test_the_terminal_is_given_back_after_an_error():
    before = "def fail(epoch, step, performance_measures, context):\n    raise RuntimeError('broken')"
    text, code, raw = in_a_terminal("[fail]", before)
    assert code == 1
    assert "RuntimeError: broken" in text
    assert raw.count(b"\x1b[?25l") == raw.count(b"\x1b[?25h") == 1  # the cursor was hidden, and is shown again


def test_loaders_without_a_length_have_no_time_left(capfd):
    loaders = {"train_data_loader": LoaderWithoutLength(), "val_data_loader": None}
    speech_trainer(ProgressBar(every="1ba"), **loaders).start_training()
    lines = capfd.readouterr().err
    assert "epoch 1/3, step 1, loss" in lines
    assert "left" not in lines


def test_measures_are_read_only_when_they_are_shown(capfd):
    reads = []
    trainer = speech_trainer(ProgressBar(every="4ba"), val_data_loader=None, epochs=1)
    measures = trainer.performance_measures.training
    numbers = measures._numbers
    measures._numbers = lambda: reads.append(trainer.global_step) or numbers()
    trainer.start_training()
    assert {step for step in reads if step} == {4}  # before the first batch a dry save looks at everything


def test_a_bar_changes_nothing_of_the_run(tmp_path, capfd):
    whole, resumed = whole_and_resumed(5, tmp_path, ProgressBar(every="1ba"))
    assert dict(whole.performance_measures) == dict(resumed.performance_measures)
    assert re.search(r"epoch 2/3, step 2/4.*\n(?!epoch 2/3, step 1)", capfd.readouterr().err)


def test_metrics_are_printed_after_each_epoch(capfd):
    trainer = speech_trainer(PrintMetrics())
    trainer.start_training()
    lines = capfd.readouterr().out.splitlines()
    assert [line[:10] for line in lines] == ["epoch 1/3:", "epoch 2/3:", "epoch 3/3:"]
    measures = trainer.performance_measures
    assert f"val_loss {measures['val_loss']:.4g}" in lines[-1]
    assert f"val_wer {100 * measures['val_word_error_rate']:.1f} %" in lines[-1]
    assert f"token_accuracy {measures['token_accuracy']:.4g}" in lines[-1]


class Place:
    """Where a run is, as far as the time left depends on it."""

    callbacks = ()
    epochs, epoch, batches_done, global_step, seconds = 2, 0, 1, 1, 3.0
    train_data_loader = Utterances(batches=10)
    max_duration: str | None = None


@pytest.mark.parametrize(
    ("max_duration", "seconds"), [(None, 19 * 2.0), ("5ba", 4 * 2.0), ("10s", 7.0), ("1h", 19 * 2.0), ("1s", 0.0)]
)
def test_time_left_follows_from_what_ends_first(max_duration, seconds, monkeypatch):
    clock = iter([100.0, 102.0])
    monkeypatch.setattr(speed, "time", SimpleNamespace(monotonic=lambda: next(clock)))  # other threads have their own
    measured = speed.Throughput()
    measured.add(object())
    place = Place()
    place.max_duration = max_duration
    assert measured.seconds_left(place) == pytest.approx(seconds)


def test_the_rate_leaves_validations_out(monkeypatch):
    clock = iter([0.0, 2.0, 8.0, 10.0])
    monkeypatch.setattr(speed, "time", SimpleNamespace(monotonic=lambda: next(clock)))  # other threads have their own
    measured = speed.Throughput()
    measured.add(next(iter(Utterances())))
    measured.pause()
    measured.resume()
    assert measured.audio_per_second == pytest.approx(2.2 / 4.0)


def lines_of(capfd, *callbacks, **fields):
    trainer = speech_trainer(*callbacks, **fields)
    trainer.start_training()
    return capfd.readouterr().out.splitlines(), trainer


def test_everything_logged_at_a_step_is_one_line(capfd):
    lines, trainer = lines_of(capfd, LogMeasures(every="2ba"), LRMonitor(every="2ba"), ConsoleLog())
    assert [line.split()[:4] for line in lines] == [
        ["epoch", str((step - 1) // 4 + 1), "step", str(step)] for step in range(2, 13, 2)
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
    assert capfd.readouterr().out.startswith("epoch 1 step 1 loss ")

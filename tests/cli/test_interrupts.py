"""Ctrl-C as a terminal sends it, to all processes of a command, at moments that the tests wait for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
import matrix_parts

SMOKE = Path(__file__).parents[2] / "configs" / "smoke.yaml"
COMMAND = [sys.executable, "-m", "sonosco_like"]
SYNTH = ["data", "synth", "corpus", "--minutes", "600", "--workers", "2"]
TRAIN = ["train", "--config", str(SMOKE), "--run-dir", "run", "--set", "corpus.minutes=600"]


def interrupt(command: list[str], folder: Path, reached: Callable[[int], object], times: int) -> tuple[int, str]:
    """Start a command, send Ctrl-C when a moment is reached; its exit code, and what it said as errors.

    The errors end when every process that can write them has ended: none is left behind.
    """
    started = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    while not reached(started.pid):
        assert started.poll() is None, started.stderr.read()
        time.sleep(0.02)
    for _ in range(times):
        os.killpg(started.pid, signal.SIGINT)
    _, errors = started.communicate(timeout=600)
    return started.returncode, errors


def check_said(code: int, errors: str, sentence: str) -> None:
    assert code == 130, errors
    assert errors.count(sentence) == 1, errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


def has_children(pid: int) -> bool:
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())


on_linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="sees processes on Linux only")
once_and_again = pytest.mark.parametrize("times", [1, 5])


@once_and_again
@pytest.mark.parametrize("command", [SYNTH, TRAIN], ids=["synth", "train"])
def test_while_a_corpus_is_made(command, times, tmp_path):
    code, errors = interrupt([*COMMAND, *command], tmp_path, lambda pid: list(tmp_path.rglob("*.flac")), times)
    check_said(code, errors, "Interrupted.")
    assert not list(tmp_path.rglob("*.jsonl")), "a half corpus must not pass for a whole one"


@on_linux
@once_and_again
def test_while_the_processes_for_a_corpus_are_started(times, tmp_path):
    code, errors = interrupt([*COMMAND, *SYNTH], tmp_path, has_children, times)
    check_said(code, errors, "Interrupted.")


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("body", ["time.sleep(600)", "try: time.sleep(600)\nexcept BaseException: time.sleep(600)"])
def test_while_something_is_imported(body, times, tmp_path):
    (tmp_path / "slow.py").write_text(f"import pathlib, time\npathlib.Path('reached').touch()\n{body}\n")
    command = [*COMMAND, "check", "--config", str(SMOKE), "--import", "slow"]
    code, errors = interrupt(command, tmp_path, lambda pid: (tmp_path / "reached").exists(), times)
    check_said(code, errors, "Interrupted.")


def test_while_an_object_is_deleted(tmp_path):
    program = """
import pathlib, time
from sonosco_like.cli import terminal
class Slow:
    def __del__(self):
        pathlib.Path("reached").touch()
        time.sleep(600)
terminal.listen()
slow = Slow()
del slow
"""
    command = [sys.executable, "-c", program]
    code, errors = interrupt(command, tmp_path, lambda pid: (tmp_path / "reached").exists(), 1)
    check_said(code, errors, "Interrupted.")


@pytest.mark.parametrize("reached", ["run/config.yaml", "run/checkpoints/step-*", "run/tensorboard/*"])
@once_and_again
def test_while_a_run_trains(reached, times, tmp_path):
    matrix_parts.make_corpus(tmp_path / "noise")
    own = ["--train", "noise/train.jsonl", "--val", "noise/val.jsonl", "--set", "trainer.epochs=100000"]
    command = [*COMMAND, "train", "--config", str(SMOKE), *own, "--run-dir", "run"]
    code, errors = interrupt(command, tmp_path, lambda pid: list(tmp_path.glob(reached)), times)
    assert code == 130, errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


def test_a_command_that_is_over_is_not_undone_by_a_late_ctrl_c(tmp_path):
    program = """
import atexit, pathlib, sys, time
from sonosco_like.cli import main, terminal
class Last:
    def __del__(self):
        pathlib.Path("reached").touch()
        time.sleep(1)
sys.modules["last"] = Last()
main(["--version"])
"""
    command = [sys.executable, "-c", program]
    code, errors = interrupt(command, tmp_path, lambda pid: (tmp_path / "reached").exists(), 2)
    assert (code, errors) == (0, "")


def test_ctrl_c_while_the_command_line_is_imported_ends_it_without_a_traceback(tmp_path):
    (tmp_path / "click.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    done = subprocess.run(
        [*COMMAND, "--version"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        check=False,
    )
    check_said(done.returncode, done.stderr, "Interrupted.")

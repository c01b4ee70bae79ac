"""A terminal that is closed, and output that nobody reads, while a run is under way: nothing of it is lost."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from tiny import tiny_config

from sonosco_like.runs.checkpoints import Checkpoints

HERE = Path(__file__).parents[1]

CONFIG = tiny_config(
    """
  callbacks:
  - {class: ProgressBar}
  - {class: LogMeasures, every: 1ba}
  - {class: tiny.Gate, at: 4}
  - {class: ModelCheckpoint, every: 4ba, keep_last: 2}
""",
    epochs=6,
)
COMMAND = ["train", "--config", "tiny.yaml", "--run-dir", "run", "--import", "tiny"]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with a config whose run waits in the batch after step 4."""
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    (tmp_path / "run.hold").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    return tmp_path


def command() -> list[str]:
    return [sys.executable, "-m", "sonosco_like", *COMMAND]


def wait_until_held(folder: Path, is_alive) -> None:
    while not (folder / "run" / "checkpoints" / "step-00000004").exists():
        assert is_alive(), "the run ended before it was held"
        time.sleep(0.02)


def test_a_closed_terminal_saves_the_batch_under_way(folder):
    """The terminal is a real one, of which the run is the first process."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, command())
    os.set_blocking(terminal, False)

    def is_alive() -> bool:
        with suppress(BlockingIOError):
            os.read(terminal, 2**16)  # or the run would wait for its console
        return os.waitpid(pid, os.WNOHANG) == (0, 0)

    wait_until_held(folder, is_alive)
    os.close(terminal)
    os.kill(pid, signal.SIGHUP)  # as a shell does on top of the system
    (folder / "run.hold").unlink()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 129
    assert Checkpoints(folder / "run").newest().name == "step-00000005"
    assert yaml.safe_load((folder / "run" / "status.yaml").read_text())["state"] == "interrupted"


def test_output_that_nobody_reads_any_more_does_not_end_a_run(folder):
    process = subprocess.Popen(command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until_held(folder, lambda: process.poll() is None)
    process.stdout.close()
    process.stderr.close()
    (folder / "run.hold").unlink()
    assert process.wait() == 0
    assert yaml.safe_load((folder / "run" / "status.yaml").read_text())["state"] == "finished"


def test_nohup_is_respected(folder):
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = subprocess.Popen(command(), preexec_fn=ignore, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until_held(folder, lambda: process.poll() is None)
    process.send_signal(signal.SIGHUP)
    (folder / "run.hold").unlink()
    assert process.wait() == 0


def test_a_hangup_before_the_first_batch_leaves_with_its_exit_code(tmp_path):
    code = (
        "import os, signal\nfrom sonosco_like import cli\n"
        "cli.run = lambda args: os.kill(os.getpid(), signal.SIGHUP)\ncli.main([])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (129, "Ended by SIGHUP.\n")

"""A run that is killed in the middle, as by a machine that loses power."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from warm import warm_python

from sonosco_like.events import AbstractCallback
from sonosco_like.serialization import serializable

HERE = Path(__file__).parent


@serializable
class KillAt(AbstractCallback):
    """Kills its process when so many batches are done, once: the flag is gone when the run is resumed.

    What was handed over to be saved is on disk by then, however slow the disk is.
    """

    at: int
    flag: Path

    def __call__(self, epoch, step, performance_measures, context):
        if context.global_step == self.at and self.flag.exists():
            context.saver.wait()
            self.flag.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def run_until_killed(folder: Path, callbacks: str, saved_at: int, killed_at: int, clock: float = 0.0) -> Path:
    """Train with these callbacks (Python text) in another process, which dies; returns its last checkpoint.

    The process believes it is `clock` seconds later than it is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "armed").touch()
    code = f"""
saving, killing = SaveAt(at={saved_at}, path=folder / "checkpoint"), KillAt(at={killed_at}, flag=folder / "armed")
speech_trainer({callbacks}, saving, killing).start_training()
"""
    assert _run(folder, code, clock) == -signal.SIGKILL
    return folder / "checkpoint"


def resume_until_killed(folder: Path, saved_at: int, killed_at: int, clock: float = 0.0) -> None:
    """Train on from the last checkpoint, to the next kill if the run gets so far."""
    (folder / "armed").touch()
    code = f"""
trainer = load(folder / "checkpoint")
trainer.callbacks[-2].at, trainer.callbacks[-1].at = {saved_at}, {killed_at}
trainer.continue_training()
(folder / "armed").unlink()
"""
    code = _run(folder, code, clock)
    assert code == (0 if killed_at > 12 else -signal.SIGKILL)


def _run(folder: Path, code: str, clock: float) -> int:
    before = f"""
import time
from pathlib import Path
from killing import KillAt
from tiny_speech import speech_trainer
from tiny import SaveAt
from sonosco_like.callbacks import CsvFile, FreezeParameters, MetricsFile, WandbDestination
from sonosco_like.callbacks.monitors import LogMeasures
from sonosco_like.callbacks.tensorboard import TensorBoardCallback
from sonosco_like.serialization import load
folder, now = Path({str(folder)!r}), time.time
time.time = lambda: now() + {clock}
"""
    inherited = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}  # it must have its own
    environment = {**inherited, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, (HERE, HERE.parent)))}
    command = [*warm_python(), "-c", before + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode

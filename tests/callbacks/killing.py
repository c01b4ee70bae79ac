"""A run that is killed in the middle, as by a machine that loses power."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from sonosco_like.events import AbstractCallback
from sonosco_like.serialization import serializable

HERE = Path(__file__).parent


@serializable
class KillAt(AbstractCallback):
    """Kills its process when so many batches are done, once: the flag is gone when the run is resumed."""

    at: int
    flag: Path

    def __call__(self, epoch, step, performance_measures, context):
        if context.global_step == self.at and self.flag.exists():
            self.flag.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def run_until_killed(folder: Path, callbacks: str, saved_at: int, killed_at: int) -> Path:
    """Train with these callbacks (Python text) in another process, which dies; returns its last checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    flag = folder / "armed"
    flag.touch()
    code = f"""
from pathlib import Path
from killing import KillAt
from tiny_run import SaveAt, make_trainer
from sonosco_like.callbacks.destinations import CsvFile, MetricsFile, WandbDestination
from sonosco_like.callbacks.logging_measures import LogMeasures
from sonosco_like.callbacks.tensorboard import TensorBoardCallback
folder = Path({str(folder)!r})
saving, killing = SaveAt(at={saved_at}, path=folder / "checkpoint"), KillAt(at={killed_at}, flag=Path({str(flag)!r}))
make_trainer({callbacks}, saving, killing).start_training()
"""
    inherited = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}  # it must have its own
    environment = {**inherited, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, (HERE, HERE.parent)))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return folder / "checkpoint"

"""The names of the files and folders in a run folder, for all code that writes or reads a run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

CONFIG = "config.yaml"  # as it was resolved at the start; with it a folder is a run
RUN_ID = "run_id"  # drawn once; every checkpoint of the run holds it too
ENVIRONMENT = "environment.yaml"
CHANGES = "changes.yaml"
STATUS = "status.yaml"
METRICS = "metrics.jsonl"
LOGS, PLOTS, CODE, TENSORBOARD = "logs", "plots", "code", "tensorboard"
CHECKPOINTS = "checkpoints"
LATEST, BEST = "latest", "best"  # pointers to checkpoints
LOCK = "lock"  # held by the process that trains
FINAL = "final"

STEP_CHECKSUMS = "step_checksums.jsonl"  # of `sonosco verify-resume`

OWN = (
    CONFIG, RUN_ID, ENVIRONMENT, CHANGES, STATUS, LOGS, CODE, CHECKPOINTS, LATEST, BEST, LOCK, FINAL, STEP_CHECKSUMS,
)  # fmt: skip
"""What the run itself writes; callbacks may not write to these."""
WRITTEN = (*OWN, METRICS, PLOTS, TENSORBOARD)
WRITTEN_IN_PLACE = (LOGS, METRICS, PLOTS, TENSORBOARD, STEP_CHECKSUMS)
"""Files to which rows are appended; all others are replaced as a whole."""

STEP = re.compile(r"step-(\d{8,})")  # the name of a checkpoint


def shown(path: str | Path) -> str:
    """A path for messages and commands, relative to the working directory if it is inside."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else str(path)


def name_of(step: int) -> str:
    """The name of the checkpoint of a step."""
    return f"step-{step:08d}"


def step_of(checkpoint: Path) -> int:
    """The step in the name of a checkpoint; -1 for any other name."""
    match = STEP.fullmatch(checkpoint.name)
    return int(match.group(1)) if match else -1


def following_name(stamp: str, taken: Iterable[str]) -> str:
    """A name that sorts after all `taken` ones: the time stamp, or if the clock went back, the last name with a number.

    The number is one digit from 2 to 9; after 9 a second number follows, so that names sort in the order of counting.
    """
    last = max(taken, default="")
    if stamp > last:
        return stamp
    base, mark, number = last.rpartition("_")
    return f"{base}_{int(number) + 1}" if mark and number in "2345678" and number else f"{last}_2"

"""What is in a run folder, and what it is called there: the one list for all who write a run and all who read it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

CONFIG = "config.yaml"  # as it was resolved at the start; with it a folder is a run
RUN_ID = "run_id"  # made once, and said by every checkpoint of the run
ENVIRONMENT = "environment.yaml"
CHANGES = "changes.yaml"
STATUS = "status.yaml"
METRICS = "metrics.jsonl"
LOGS, PLOTS, CODE, TENSORBOARD = "logs", "plots", "code", "tensorboard"
CHECKPOINTS = "checkpoints"
LATEST, BEST = "latest", "best"  # pointers to checkpoints
LOCK = "lock"  # held by the process that trains
FINAL = "final"

WITNESS = "witness.jsonl"  # of `sonosco verify-resume`

OWN = (
    CONFIG, RUN_ID, ENVIRONMENT, CHANGES, STATUS, LOGS, CODE, CHECKPOINTS, LATEST, BEST, LOCK, FINAL, WITNESS,
)  # fmt: skip
"""What the run itself writes, and no callback may."""
WRITTEN = (*OWN, METRICS, PLOTS, TENSORBOARD)
WRITTEN_IN_PLACE = (LOGS, METRICS, PLOTS, TENSORBOARD, WITNESS)
"""What is written to after it was made; everything else is replaced as a whole."""

STEP = re.compile(r"step-(\d{8,})")  # what a checkpoint is called


def name_of(step: int) -> str:
    """What the checkpoint of a step is called."""
    return f"step-{step:08d}"


def step_of(checkpoint: Path) -> int:
    """The step a checkpoint was taken at; -1 for what is not called like one."""
    match = STEP.fullmatch(checkpoint.name)
    return int(match.group(1)) if match else -1


def following_name(stamp: str, taken: Iterable[str]) -> str:
    """A name that sorts after all that are there: the stamp of the clock, or if that went back, the last with a number.

    Numbers are one digit from 2 to 9, after which another one is added, so that they sort as they count.
    """
    last = max(taken, default="")
    if stamp > last:
        return stamp
    base, mark, number = last.rpartition("_")
    return f"{base}_{int(number) + 1}" if mark and number in "2345678" and number else f"{last}_2"

"""Which saved trainer is meant by a run folder, a checkpoint, `final`, or one of the pointers beside them."""

from __future__ import annotations

import re
from pathlib import Path

from sonosco_like.errors import UsageError
from sonosco_like.serialization import files

_STEP = re.compile(r"step-(\d{8,})")
_STATE = "state.yaml"


def find_checkpoint(path: str | Path) -> Path:
    """The folder of a saved trainer.

    Of a run folder it is the checkpoint that `best` names, else `final`, else the newest.
    """
    folder = files.absolute(path)
    files.restore_previous(folder)
    if folder.is_file():
        folder = _pointed(folder) or folder
    if (folder / _STATE).is_file():
        return folder
    if not folder.exists():
        raise UsageError(f"There is no run or checkpoint at {path}. Give a run folder, or a checkpoint in one.")
    if not folder.is_dir():
        raise UsageError(f"{path} is a file, not a run folder or a checkpoint in one.")
    found = _of_run(folder)
    if found is None:
        raise UsageError(_nothing_in(folder))
    return found


def _of_run(run: Path) -> Path | None:
    best = _pointed(run / "best")
    if best is not None:
        return best
    files.restore_previous(run / "final")
    if (run / "final" / _STATE).is_file():
        return run / "final"
    steps = {path: match for path in run.glob("checkpoints/step-*") if (match := _STEP.fullmatch(path.name))}
    return max(steps, key=lambda step: int(steps[step].group(1)), default=None)


def _pointed(pointer: Path) -> Path | None:
    """The checkpoint a pointer names, if it names one that is there."""
    if not pointer.is_file() or pointer.stat().st_size > 1000:
        return None
    match = _STEP.search(pointer.read_text(errors="replace"))
    path = pointer.parent / "checkpoints" / match.group() if match else None
    return path if path is not None and path.is_dir() else None


def _nothing_in(folder: Path) -> str:
    if (folder / "config.yaml").is_file():
        return f"The run {folder} has no checkpoint yet. Train it until it has written one: sonosco resume {folder}"
    return f"{folder} is neither a run folder nor a checkpoint: there is no trainer saved in it."

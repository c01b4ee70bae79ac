"""The checkpoints of a run: finding the newest, the best and the final one after any crash, and deleting old ones."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonosco_like.errors import StorageError, UsageError
from sonosco_like.runs.identity import Owners, checkpoint_folders, warn_once
from sonosco_like.runs.run_folder import BEST, CHECKPOINTS, CONFIG, FINAL, LATEST, STEP, name_of
from sonosco_like.serialization import (
    STATE_FILE,
    Saved,
    absolute_path,
    file_differs,
    read_origin,
    replace_file,
    restore_previous,
    verify,
)

logger = logging.getLogger(__name__)

PARTS = ("model", "averaging")  # the parts of a trainer that hold weights
_LONGEST_POINTER = 1000


class Checkpoints:
    """The folder `checkpoints/` of a run and the pointers `latest` and `best` beside it.

    `best_steps` are the steps of the best checkpoints, the best first. The callback that ranks checkpoints sets it, and
    each new checkpoint holds it, so that a lost pointer `best` can be repaired.
    """

    def __init__(self, run: Path, best_steps: Iterable[int] = ()) -> None:
        self.run = run
        self.folder = run / CHECKPOINTS
        self.best_steps = list(best_steps)

    def path_of(self, step: int) -> Path:
        """The folder for the checkpoint of a step, whether it is there or not."""
        return self.folder / name_of(step)

    def all(self) -> list[Path]:
        """Every checkpoint of this run, the oldest first."""
        return checkpoints_of(self.run)

    def newest(self) -> Path | None:
        """The newest intact checkpoint; damaged ones and those of other runs are named in the log and skipped."""
        warn_of_foreign_checkpoints(self.run)
        return next((path for path in reversed(self.all()) if is_intact(path)), None)

    def final(self) -> Path | None:
        """The trainer at the end of the run, if it is there and intact."""
        found = own_final(self.run)
        return found if found is not None and is_intact(found) else None

    def best(self) -> Path | None:
        """The best intact checkpoint by the ranking in the newest one; None if the run ranks none."""
        newest = self.newest()
        ranked = map(self.path_of, ranking_in(newest)) if newest is not None else iter(())
        own = set(self.all())
        return next((path for path in ranked if path in own and is_intact(path)), None)

    def point(self, name: str, path: Path) -> None:
        """Let the pointer `latest` or `best` name a checkpoint."""
        content = f"{CHECKPOINTS}/{path.name}\n".encode()
        pointer = self.run / name
        if file_differs(pointer, content):
            replace_file(pointer, content)

    def pointed(self, name: str) -> Path | None:
        """The checkpoint that the pointer `latest` or `best` names, if it is there."""
        return read_pointer(self.run / name)

    def repair(self) -> None:
        """Let `latest` and `best` name the newest and the best intact checkpoint, whatever they name now."""
        for name, path in ((LATEST, self.newest()), (BEST, self.best())):
            if path is not None:
                self.point(name, path)
            else:
                (self.run / name).unlink(missing_ok=True)

    def prune(self, keep: set[Path], last: int) -> None:
        """Delete all but the last few and those in `keep`; the newest one always stays."""
        every = self.all()
        for path in every[: max(0, len(every) - max(1, last))]:
            if path not in keep:
                shutil.rmtree(path, ignore_errors=True)

    def weights_at(self, step: int) -> dict[str, Any] | None:
        """The states of the parts that hold weights at a step, by name; None without an intact checkpoint of it."""
        path = self.path_of(step)
        if path not in self.all() or not is_intact(path):
            return None
        saved = Saved(path)
        return {name: state for name in PARTS if (state := saved.state(name, "state_dict"))}


def checkpoints_of(run: Path) -> list[Path]:
    """Every checkpoint of a run, the oldest first; without those of other runs and those named after another step."""
    found = checkpoint_folders(run)
    owners = Owners(run, found)
    return [path for path in found if not owners.reason_not_own(path)]


def warn_of_foreign_checkpoints(run: Path) -> None:
    """Log a warning for each checkpoint in a run folder that is skipped because it is not the run's own."""
    found = checkpoint_folders(run)
    owners = Owners(run, found)
    for path in (*found, run / FINAL):
        if reason_not_own := owners.reason_not_own(path):
            warn_once(path, f"{path.name} is not used: {reason_not_own}. Move it out of {run}.")


def own_final(run: Path) -> Path | None:
    """The folder `final` of a finished run, intact or not; None if it is missing, or is another run's."""
    final = run / FINAL
    restore_previous(final)
    is_own = (final / STATE_FILE).is_file() and not Owners(run, checkpoint_folders(run)).reason_not_own(final)
    return final if is_own else None


def read_pointer(pointer: Path) -> Path | None:
    """The checkpoint that a file `latest` or `best` in a run folder names, if it is there."""
    if not pointer.is_file() or pointer.stat().st_size > _LONGEST_POINTER:
        return None
    match = STEP.search(pointer.read_text(errors="replace"))
    path = pointer.parent / CHECKPOINTS / match.group() if match else None
    return path if path is not None and path.is_dir() else None


def is_intact(checkpoint: Path) -> bool:
    """Whether a checkpoint is not damaged. An intact one of a newer format raises, so that it is not skipped."""
    try:
        verify(checkpoint)
    except StorageError as error:
        warn_once(checkpoint, f"The checkpoint {checkpoint.name} is damaged and not used: {error}")
        return False
    return True


def ranking_in(checkpoint: Path) -> list[int]:
    """The steps of the best checkpoints, the best first, as a checkpoint holds them."""
    origin = read_origin(checkpoint)
    if origin is not None and origin.best is not None:
        return list(origin.best)
    return _ranking_of_older_version(checkpoint)


def _ranking_of_older_version(checkpoint: Path) -> list[int]:
    """The ranking in a checkpoint of an older version: there the state of the callback that ranks holds it."""
    saved = Saved(checkpoint, tensors=False)
    values = (saved.state(path, "best") for path in saved.paths())
    ranked = next((value for value in values if isinstance(value, dict) and value), {})
    return [int(step) for step in ranked]


def find_checkpoint(path: str | Path) -> Path:
    """The folder of a saved trainer or recogniser.

    In a run folder it is the checkpoint that `best` names, else `final`, else the newest, the first of them that is
    intact.
    """
    folder = absolute_path(path)
    restore_previous(folder)
    if folder.is_file():
        folder = _pointed_own(folder) or folder
    if (folder / STATE_FILE).is_file():
        return folder
    if not folder.exists():
        raise UsageError(f"There is no run or checkpoint at {path}. Give a run folder, or a checkpoint in one.")
    if not folder.is_dir():
        raise UsageError(f"{path} is a file, not a run folder or a checkpoint in one.")
    warn_of_foreign_checkpoints(folder)
    found = list(_candidates(folder))
    if not found:
        raise UsageError(_nothing_in(folder))
    return next(filter(is_intact, found), found[0])  # if none is intact, reading the first one explains what is wrong


def _pointed_own(pointer: Path) -> Path | None:
    found = read_pointer(pointer)
    if found is not None and found not in checkpoints_of(pointer.parent):
        raise UsageError(f"{pointer} names {found.name}, which is not a checkpoint of this run. Give the run folder.")
    return found


def _candidates(run: Path) -> Iterator[Path]:
    """The saved trainers of a run, the one to use first."""
    own = checkpoints_of(run)
    best = read_pointer(run / BEST)
    if best in own:
        yield best
    final = own_final(run)
    if final is not None:
        yield final
    yield from reversed(own)


def _nothing_in(folder: Path) -> str:
    if (folder / CONFIG).is_file():
        return f"The run {folder} has no checkpoint yet. Train it until it has written one: sonosco resume {folder}"
    return f"{folder} is neither a run folder nor a checkpoint: there is no trainer saved in it."


@dataclass(eq=False)
class Run:
    """Name, folder and seed of a run, its id, when it first started, and whether it was resumed or interrupted.

    Callbacks see it as `context.experiment`.
    """

    name: str
    folder: Path
    seed: int
    id: str = ""
    started: str = ""
    is_resumed: bool = False
    interrupted: bool = False
    checkpoints: Checkpoints = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoints = Checkpoints(self.folder)

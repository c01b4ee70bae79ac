"""The saved trainers of a run folder: what points to them, and which one is meant by a path."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from sonosco_like.errors import StorageError, UsageError
from sonosco_like.inference.ownership import Owners
from sonosco_like.run_folder import BEST, CHECKPOINTS, CONFIG, FINAL, STEP, step_of
from sonosco_like.serialization import files, verify
from sonosco_like.serialization.folder import STATE

logger = logging.getLogger(__name__)

_LONGEST_POINTER = 1000


def checkpoints_of(run: Path) -> list[Path]:
    """Every checkpoint of a run, the oldest first; those of another run, or called by another step, are left out."""
    found = folders_of_checkpoints(run)
    owners = Owners(run, found)
    return [path for path in found if not owners.objection(path)]


def name_strangers(run: Path) -> None:
    """Say which checkpoints in a run folder are passed over because they are not the run's own."""
    found = folders_of_checkpoints(run)
    owners = Owners(run, found)
    for path in (*found, run / FINAL):
        if objection := owners.objection(path):
            logger.warning("%s is not used: %s. Move it out of %s.", path.name, objection, run)


def folders_of_checkpoints(run: Path) -> list[Path]:
    """Every folder that is called like a checkpoint, the lowest step first, whosever it is."""
    folder = run / CHECKPOINTS
    left = [] if folder.is_symlink() else folder.glob(".step-*.previous")  # nothing is moved behind a link
    for path in left:  # of a process that died while it replaced a checkpoint
        files.restore_previous(path.with_name(path.name[1:].removesuffix(".previous")))
    return sorted((path for path in folder.glob("step-*") if step_of(path) >= 0), key=step_of)


def pointed(pointer: Path) -> Path | None:
    """The checkpoint that `latest` or `best`, a file in a run folder, names, if it names one that is there."""
    if not pointer.is_file() or pointer.stat().st_size > _LONGEST_POINTER:
        return None
    match = STEP.search(pointer.read_text(errors="replace"))
    path = pointer.parent / CHECKPOINTS / match.group() if match else None
    return path if path is not None and path.is_dir() else None


def own_final(run: Path) -> Path | None:
    """The trainer at the end of a finished run, intact or not; None if there is none, or another run's."""
    final = run / FINAL
    files.restore_previous(final)
    is_own = (final / STATE).is_file() and not Owners(run, folders_of_checkpoints(run)).objection(final)
    return final if is_own else None


def is_intact(checkpoint: Path) -> bool:
    """Whether a checkpoint is not damaged. One that is whole but of a newer form raises: it must not be passed over."""
    try:
        verify(checkpoint)
    except StorageError as error:
        logger.warning("The checkpoint %s is damaged and not used: %s", checkpoint.name, error)
        return False
    return True


def find_checkpoint(path: str | Path) -> Path:
    """The folder of a saved trainer.

    Of a run folder it is the checkpoint that `best` names, else `final`, else the newest, as far as they are intact.
    """
    folder = files.absolute(path)
    files.restore_previous(folder)
    if folder.is_file():
        folder = _pointed_own(folder) or folder
    if (folder / STATE).is_file():
        return folder
    if not folder.exists():
        raise UsageError(f"There is no run or checkpoint at {path}. Give a run folder, or a checkpoint in one.")
    if not folder.is_dir():
        raise UsageError(f"{path} is a file, not a run folder or a checkpoint in one.")
    found = _of_run(folder)
    if found is None:
        raise UsageError(_nothing_in(folder))
    return found


def _pointed_own(pointer: Path) -> Path | None:
    found = pointed(pointer)
    if found is not None and found not in checkpoints_of(pointer.parent):
        raise UsageError(f"{pointer} names {found.name}, which is not a checkpoint of this run. Give the run folder.")
    return found


def _of_run(run: Path) -> Path | None:
    """The first that is intact; if none is, the first, so that its reader says what is wrong with it."""
    name_strangers(run)
    found = list(_in_order_of_worth(run))
    return next(filter(is_intact, found), found[0] if found else None)


def _in_order_of_worth(run: Path) -> Iterator[Path]:
    own = checkpoints_of(run)
    best = pointed(run / BEST)
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

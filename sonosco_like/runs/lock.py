"""The lock of a run folder, which the system releases when its process ends, and the leftovers of killed saves."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sonosco_like.errors import ConfigError, StorageError, UsageError
from sonosco_like.runs.run_folder import (
    BEST,
    CHANGES,
    CHECKPOINTS,
    CODE,
    CONFIG,
    ENVIRONMENT,
    FINAL,
    LATEST,
    LOCK,
    LOGS,
    METRICS,
    PLOTS,
    RUN_ID,
    STATUS,
    TENSORBOARD,
    WRITTEN,
    WRITTEN_IN_PLACE,
    step_of,
)
from sonosco_like.serialization import GRAPH_FILE, STATE_FILE, TENSOR_FILE, restore_previous, verify
from sonosco_like.untrusted_files import break_hard_links, open_without_links, refuse_links

logger = logging.getLogger(__name__)

try:
    import fcntl
except ImportError:  # Windows has none, so that two processes can use one run folder there
    fcntl = None  # type: ignore[assignment]

_ASIDE = re.compile(r"\.(.+)\.(saving|previous)")  # the names that `files` gives to new and replaced files
_OWN_FILES = {CONFIG, RUN_ID, ENVIRONMENT, CHANGES, STATUS, METRICS, LATEST, BEST}
_OWN_FOLDERS = {CODE, PLOTS, LOGS, TENSORBOARD}
_SAVED = {GRAPH_FILE, STATE_FILE, TENSOR_FILE}

_held: set[Path] = set()  # folders that this process has locked; the system would lock them for it again


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder. Raises UsageError if another process holds it.

    The process with the lock may write to the folder, so links are refused or replaced first: no file that a run writes
    may lead out of its folder. The lock belongs to the process and not to the open file; forked loader workers would
    share the open file, and would hold its lock for as long as they outlive a killed trainer.
    """
    resolved = folder.resolve()
    if resolved in _held:
        raise UsageError(f"{folder} is in use by this process already.")
    refuse_links(folder, WRITTEN)
    descriptor = open_without_links(folder / LOCK)
    try:
        _lock(descriptor, folder)
        _held.add(resolved)
        break_hard_links(folder, WRITTEN_IN_PLACE)
        yield
    finally:
        _held.discard(resolved)
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        if fcntl is not None:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        text = f"{folder} is in use by process {owner or 'unknown'}; wait for it, or stop it."
        raise UsageError(text) from None
    os.truncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())


def clear_leftovers(run: Path) -> None:
    """Restore the folder that a killed save was replacing, and delete the one it had begun. Needs the lock.

    Anything that may be the user's stays: links, other names, folders with other files than those of a saved object.
    """
    for aside, place, kind in _leftovers(run):
        try:
            if kind == "previous":
                _restore_or_delete(aside, place)
            elif _is_half_saved(aside, place, run):
                _delete(aside)
        except OSError as error:
            logger.warning("%s, which a killed save left behind, could not be deleted: %s", aside, error)


def _leftovers(run: Path) -> Iterator[tuple[Path, Path, str]]:
    """The files and folders with the name of a new or replaced one, their places, and which of the two they are."""
    found = []
    for folder, folders, names in os.walk(run):
        for name in (*folders, *names):
            if match := _ASIDE.fullmatch(name):
                found.append((Path(folder, name), Path(folder, match[1]), match[2]))
    yield from (each for each in found if not each[0].is_symlink())


def _restore_or_delete(previous: Path, place: Path) -> None:
    """Move the replaced folder back if the new one is missing; delete it if the new one is whole."""
    if not _holds_saved(previous):
        return
    restore_previous(place)
    if not previous.exists():
        return
    try:
        verify(place)
    except (StorageError, ConfigError):
        return
    _delete(previous)


def _is_half_saved(aside: Path, place: Path, run: Path) -> bool:
    inside = place.relative_to(run).parts
    if aside.is_dir():
        is_checkpoint = inside[:-1] == (CHECKPOINTS,) and step_of(place) >= 0
        return (is_checkpoint or inside == (FINAL,) or (place / STATE_FILE).is_file()) and _holds_saved(aside)
    return place.is_file() or inside[0] in _OWN_FOLDERS or inside in {(name,) for name in _OWN_FILES}


def _holds_saved(folder: Path) -> bool:
    """Whether a folder holds nothing but files of a saved object."""
    is_folder = folder.is_dir() and not folder.is_symlink()
    return is_folder and all(each.name in _SAVED and not each.is_symlink() for each in folder.iterdir())


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    logger.info("%s, which a killed save left behind, was deleted.", path)

"""What saves that were killed left in a run folder, cleared away by the next process that trains there."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from sonosco_like.errors import ConfigError, StorageError
from sonosco_like.run_folder import (
    BEST,
    CHANGES,
    CHECKPOINTS,
    CODE,
    CONFIG,
    ENVIRONMENT,
    FINAL,
    LATEST,
    LOGS,
    METRICS,
    PLOTS,
    RUN_ID,
    STATUS,
    TENSORBOARD,
    step_of,
)
from sonosco_like.serialization import files, verify
from sonosco_like.serialization.folder import GRAPH, STATE, TENSORS

logger = logging.getLogger(__name__)

_ASIDE = re.compile(r"\.(.+)\.(saving|previous)")  # as `files` calls what is not in its place
_OWN_FILES = {CONFIG, RUN_ID, ENVIRONMENT, CHANGES, STATUS, METRICS, LATEST, BEST}
_OWN_FOLDERS = {CODE, PLOTS, LOGS, TENSORBOARD}
_SAVED = {GRAPH, STATE, TENSORS}


def clear_leftovers(run: Path) -> None:
    """Put back what a killed save was replacing, and delete what it had begun; only whoever holds the lock may.

    Whatever is not certainly ours stays: links, other names, folders with anything but the files of a saved object.
    """
    for aside, place, kind in _asides(run):
        try:
            if kind == "previous":
                _settle(aside, place)
            elif _is_half_saved(aside, place, run):
                _delete(aside)
        except OSError as error:
            logger.warning("%s of a killed save could not be cleared away: %s", aside, error)


def _asides(run: Path) -> Iterator[tuple[Path, Path, str]]:
    """Everything that is called like something beside its place, the place, and what kind it is."""
    found = []
    for folder, folders, names in os.walk(run):
        for name in (*folders, *names):
            if match := _ASIDE.fullmatch(name):
                found.append((Path(folder, name), Path(folder, match[1]), match[2]))
    yield from (each for each in found if not each[0].is_symlink())


def _settle(previous: Path, place: Path) -> None:
    """The former folder goes back if the new one is not there, and goes away if the new one is whole."""
    if not _holds_saved(previous):
        return
    files.restore_previous(place)
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
        return (is_checkpoint or inside == (FINAL,) or (place / STATE).is_file()) and _holds_saved(aside)
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
    logger.info("%s, which a killed save had left, was cleared away.", path)

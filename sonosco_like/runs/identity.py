"""The id of a run, and which of the checkpoints in its folder are its own.

A run has an id, made when it begins and kept in `run_id`; each of its checkpoints holds that id and its step. A
checkpoint with another id, or with another step than its name says, is not this run's own, and is skipped.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sonosco_like.errors import ConfigError, StorageError
from sonosco_like.runs.run_folder import CHECKPOINTS, ENVIRONMENT, FINAL, RUN_ID, step_of
from sonosco_like.serialization import (
    Origin,
    Saved,
    loads,
    read_file,
    read_origin,
    replace_file,
    restore_previous,
    verify,
)

logger = logging.getLogger(__name__)

_FORM = re.compile(r"[0-9a-f]{32}")
_LONGEST_ID = 1000
_UNREADABLE = Origin("", -1)  # of a damaged checkpoint
_warned: set[tuple[Path, str]] = set()


def warn_once(path: Path, message: str) -> None:
    """Log a warning about a file of a run, unless this process has: a command reads the same file several times."""
    key = path.absolute(), message.replace(str(path.absolute()), "").replace(str(path), "")
    if key not in _warned:
        _warned.add(key)
        logger.warning("%s", message)


class Owners:
    """The origins of the saved trainers in a run folder, and what is wrong with those that are not the run's own."""

    def __init__(self, run: Path, checkpoints: Iterable[Path]) -> None:
        self._origins = {path: _origin(path) for path in checkpoints}
        self.id = read_id(run / RUN_ID) or _id_in_environment(run) or _commonest_id(self._all(run))
        signed = [step_of(path) for path, origin in self._origins.items() if origin and origin.run == self.id]
        self._first_signed = min(signed, default=None)

    def _all(self, run: Path) -> list[Origin | None]:
        return [*self._origins.values(), _origin(run / FINAL)]

    def reason_not_own(self, checkpoint: Path) -> str:
        """The reason why a checkpoint does not belong to this run; empty if it does, or if it is damaged."""
        found = self._reason_not_own(checkpoint)
        return found if found and _is_whole(checkpoint) else ""

    def _reason_not_own(self, checkpoint: Path) -> str:
        """Checkpoints of older versions hold no id. They are from before the first one that holds an id."""
        origin = self._origins[checkpoint] if checkpoint in self._origins else _origin(checkpoint)
        step = step_of(checkpoint)
        if origin is _UNREADABLE:
            return ""
        if origin is not None and origin.run != self.id:
            return f"it is of another run ({origin.run[:32]})"
        taken = origin.step if origin is not None else _step_without_origin(checkpoint)
        if step >= 0 and taken not in (None, step):
            return f"it was taken at step {taken}"
        is_late = origin is None and self._first_signed is not None and step > self._first_signed
        return "it does not say which run it is of" if is_late else ""


def checkpoint_folders(run: Path) -> list[Path]:
    """Every folder with the name of a checkpoint, of this run or of another one, the lowest step first."""
    folder = run / CHECKPOINTS
    left = [] if folder.is_symlink() else folder.glob(".step-*.previous")  # nothing is moved behind a link
    for path in left:  # of a process that died while it replaced a checkpoint
        restore_previous(path.with_name(path.name[1:].removesuffix(".previous")))
    return sorted((path for path in folder.glob("step-*") if step_of(path) >= 0), key=step_of)


def identify(folder: Path) -> str:
    """The id of the run in a folder: its own, the one in its checkpoints if the file was lost, or a new one."""
    path = folder / RUN_ID
    found = read_id(path)
    if found is None:
        if path.exists():
            logger.warning("%s was damaged, and is written again.", path)
        found = Owners(folder, checkpoint_folders(folder)).id or uuid.uuid4().hex
        replace_file(path, f"{found}\n".encode())
    return found


def read_id(path: Path) -> str | None:
    """The id in a file; None if there is no file, or something else in it."""
    try:
        text = read_file(path, _LONGEST_ID).decode("ascii").strip()
    except (StorageError, UnicodeDecodeError):
        return None
    return text if _FORM.fullmatch(text) else None


def machine_of(checkpoint: Path, folder: Path) -> dict[str, str]:
    """The machine and packages of a checkpoint; if it does not hold them, those with which the run began."""
    origin = read_origin(checkpoint)
    if origin is not None:
        return dict(origin.computed_with)
    environment = read_environment(folder)
    packages, machine = environment.get("packages"), environment.get("machine")
    found = {
        "torch": packages.get("torch") if isinstance(packages, dict) else None,
        "threads": machine.get("threads") if isinstance(machine, dict) else None,
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def read_environment(folder: Path) -> dict[str, Any]:
    """The content of `environment.yaml`; nothing, with a warning, if it is damaged, since no run depends on it."""
    path = folder / ENVIRONMENT
    try:
        content: dict[str, Any] = loads(read_file(path), dict[str, Any], source="") if path.exists() else {}
    except (StorageError, ConfigError) as error:
        warn_once(path, f"{path} cannot be read, and is left as it is: {error}")
        return {}
    return content


def _id_in_environment(run: Path) -> str | None:
    """The id that is also in `environment.yaml`, for the case that its own file was lost."""
    try:
        content: dict[str, Any] = loads(read_file(run / ENVIRONMENT), dict[str, Any])
    except (StorageError, ConfigError):
        return None
    found = str(content.get(RUN_ID, ""))
    return found if _FORM.fullmatch(found) else None


def _commonest_id(origins: list[Origin | None]) -> str | None:
    """The id that most checkpoints hold; of equally many the one in the oldest."""
    votes = Counter(None if origin is None else origin.run for origin in origins if origin is not _UNREADABLE)
    return votes.most_common(1)[0][0] if votes else None


def _origin(checkpoint: Path) -> Origin | None:
    """The origin of a checkpoint; None if it is of an older version, or was not saved by a run."""
    try:
        return read_origin(checkpoint)
    except (StorageError, ConfigError):
        return _UNREADABLE


def _is_whole(checkpoint: Path) -> bool:
    try:
        verify(checkpoint)
    except (StorageError, ConfigError):
        return False
    return True


def _step_without_origin(checkpoint: Path) -> int | None:
    """The step of the trainer in a checkpoint without an origin; None if it is not known."""
    try:
        saved = Saved(checkpoint, tensors=False)
        step = saved.state("", "position", "global_step") or saved.state("", "global_step")  # where version 1 had it
    except (StorageError, ConfigError):
        return None
    return step or None if isinstance(step, int) else None

"""Which of the saved trainers in a run folder are the run's own.

A run has an id, made when it begins and kept in `run_id`; each of its checkpoints says that id and its step. One that
says another id, or another step than its name, was put there by somebody else, and is passed over.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sonosco_like.errors import ConfigError, StorageError
from sonosco_like.run_folder import ENVIRONMENT, FINAL, RUN_ID, step_of
from sonosco_like.serialization import files, loads, verify
from sonosco_like.serialization.context import Reader
from sonosco_like.serialization.converter import is_mapping, mapping_items
from sonosco_like.serialization.document import MAX_BYTES
from sonosco_like.serialization.folder import STATE, read_origin, read_state
from sonosco_like.serialization.origin import Origin

_FORM = re.compile(r"[0-9a-f]{32}")
_LONGEST_ID = 1000
_UNREADABLE = Origin("", -1)  # of a damaged checkpoint


class Owners:
    """The origins of the saved trainers of a run, and what is wrong with those that are not its own."""

    def __init__(self, run: Path, checkpoints: Iterable[Path]) -> None:
        self._origins = {path: _origin(path) for path in checkpoints}
        self.id = written_id(run / RUN_ID) or _id_in_environment(run) or _most_said(self._all(run))
        signed = [step_of(path) for path, origin in self._origins.items() if origin and origin.run == self.id]
        self._first_signed = min(signed, default=None)

    def _all(self, run: Path) -> list[Origin | None]:
        return [*self._origins.values(), _origin(run / FINAL)]

    def objection(self, checkpoint: Path) -> str:
        """Why a checkpoint is not one of this run, or nothing, also for a damaged one: its readers find that out."""
        found = self._objection(checkpoint)
        return found if found and _is_whole(checkpoint) else ""

    def _objection(self, checkpoint: Path) -> str:
        """Those of older versions say no id. They are from before the first that says one."""
        origin = self._origins[checkpoint] if checkpoint in self._origins else _origin(checkpoint)
        step = step_of(checkpoint)
        if origin is _UNREADABLE:
            return ""
        if origin is not None and origin.run != self.id:
            return f"it is of another run ({origin.run[:32]})"
        taken = origin.step if origin is not None else _unsigned_step(checkpoint)
        if step >= 0 and taken not in (None, step):
            return f"it was taken at step {taken}"
        is_late = origin is None and self._first_signed is not None and step > self._first_signed
        return "it does not say which run it is of" if is_late else ""


def written_id(path: Path) -> str | None:
    """The id that a file holds; None if there is none, or something else in it."""
    try:
        text = files.read_file(path, _LONGEST_ID).decode("ascii").strip()
    except (StorageError, UnicodeDecodeError):
        return None
    return text if _FORM.fullmatch(text) else None


def _id_in_environment(run: Path) -> str | None:
    """The id that is also in `environment.yaml`, for the case that its own file was lost."""
    try:
        content: dict[str, Any] = loads(files.read_file(run / ENVIRONMENT, MAX_BYTES), dict[str, Any])
    except (StorageError, ConfigError):
        return None
    told = str(content.get(RUN_ID, ""))
    return told if _FORM.fullmatch(told) else None


def _most_said(origins: list[Origin | None]) -> str | None:
    """The id that most checkpoints say; of equally many the one that the oldest says."""
    votes = Counter(None if origin is None else origin.run for origin in origins if origin is not _UNREADABLE)
    return votes.most_common(1)[0][0] if votes else None


def _origin(checkpoint: Path) -> Origin | None:
    """What a checkpoint says of itself; None if it is of an older version, or was not saved by a run."""
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


def _unsigned_step(checkpoint: Path) -> int | None:
    """The step that the trainer in a checkpoint of an older version was at; None if that cannot be told."""
    try:
        reader = Reader(str(checkpoint / STATE))
        root = mapping_items(read_state(checkpoint)["objects"], reader).get("")
        step = mapping_items(root, reader).get("global_step") if root is not None and is_mapping(root) else None
        return int(str(step.value)) or None if step is not None else None
    except (StorageError, ConfigError, ValueError):
        return None

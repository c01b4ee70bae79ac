"""The checkpoints of a run: complete or not there, found again after any crash, kept as long as they are wanted."""

from __future__ import annotations

import functools
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaml.nodes import Node

from sonosco_like.errors import ConfigError, StorageError
from sonosco_like.serialization import files, verify
from sonosco_like.serialization.context import Reader
from sonosco_like.serialization.converter import is_mapping
from sonosco_like.serialization.folder import STATE, of_one_piece, open_tensors, read_state
from sonosco_like.serialization.objects import mapping_items
from sonosco_like.serialization.types import converter_for

logger = logging.getLogger(__name__)

_FORM = re.compile(r"step-(\d{8,})")
_LONGEST_POINTER = 1000


class Checkpoints:
    """The folder `checkpoints/` of a run and the pointers `latest` and `best` beside it."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / "checkpoints"

    def path_of(self, step: int) -> Path:
        """Where the checkpoint of a step is, or will be."""
        return self.folder / f"step-{step:08d}"

    def all(self) -> list[Path]:
        """Every checkpoint, the oldest first."""
        for path in self.folder.glob(".step-*.previous"):  # of a process that died while it replaced a checkpoint
            files.restore_previous(path.with_name(path.name[1:].removesuffix(".previous")))
        found = [path for path in self.folder.glob("step-*") if _FORM.fullmatch(path.name)]
        return sorted(found, key=step_of)

    def newest(self) -> Path | None:
        """The newest checkpoint that is intact; damaged ones are named in the log and passed over."""
        return next((path for path in reversed(self.all()) if _is_intact(path)), None)

    def best(self) -> Path | None:
        """The best checkpoint that is intact, as the newest one knows; None if the run ranks none."""
        newest = self.newest()
        ranked = map(self.path_of, _best_steps(newest)) if newest is not None else iter(())
        return next((path for path in ranked if path.exists() and _is_intact(path)), None)

    def point(self, name: str, path: Path) -> None:
        """Have `latest` or `best` name a checkpoint."""
        content = f"checkpoints/{path.name}\n".encode()
        pointer = self.run / name
        if not pointer.is_file() or pointer.read_bytes() != content:
            files.replace_file(pointer, content)

    def pointed(self, name: str) -> Path | None:
        """The checkpoint that `latest` or `best` names, if it names one that is there."""
        pointer = self.run / name
        if not pointer.is_file() or pointer.stat().st_size > _LONGEST_POINTER:
            return None
        match = _FORM.search(pointer.read_text(errors="replace"))
        path = self.folder / match.group() if match else None
        return path if path is not None and path.is_dir() else None

    def repair(self) -> None:
        """Have `latest` and `best` name the newest and the best intact checkpoint, whatever they name now."""
        for name, path in (("latest", self.newest()), ("best", self.best())):
            if path is not None:
                self.point(name, path)
            else:
                (self.run / name).unlink(missing_ok=True)

    def prune(self, keep: set[Path], last: int) -> None:
        """Delete all but the last few and those that are wanted; the newest one stays in any case."""
        every = self.all()
        for path in every[: max(0, len(every) - max(1, last))]:
            if path not in keep:
                shutil.rmtree(path, ignore_errors=True)

    def restore_weights(self, trainer: Any, path: Path) -> None:
        """Give the model of a trainer, and the average of its weights if it keeps one, those of a checkpoint."""
        for name in ("model", "averaging"):
            part = getattr(trainer, name, None)
            if part is not None:
                part.load_state_dict(of_one_piece(path, functools.partial(_state_dict, name=name)))


def step_of(path: Path) -> int:
    """The step a checkpoint was taken at."""
    match = _FORM.fullmatch(path.name)
    return int(match.group(1)) if match else -1


def _is_intact(path: Path) -> bool:
    try:
        verify(path)
    except (StorageError, ConfigError) as error:
        logger.warning("The checkpoint %s is damaged and not used: %s", path.name, error)
        return False
    return True


def _best_steps(checkpoint: Path) -> list[int]:
    """The steps that the policy of a checkpoint ranks as the best, the best first; of several policies the first."""
    reader = Reader(str(checkpoint / STATE))
    for entries in _objects(checkpoint, reader):
        ranked = entries.get("best")
        if entries["class"].value.partition("@")[0] == "ModelCheckpoint" and ranked is not None and ranked.value:
            return [int(step) for step in converter_for(dict[int, float]).decode(ranked, reader)]
    return []


def _objects(checkpoint: Path, reader: Reader) -> Iterator[dict[str, Node]]:
    for node in mapping_items(read_state(checkpoint)["objects"], reader).values():
        if is_mapping(node):
            yield mapping_items(node, reader)


def _state_dict(checkpoint: Path, name: str) -> Any:
    state = read_state(checkpoint)
    reader = Reader(str(checkpoint / STATE), open_tensors(checkpoint, state))
    entries = mapping_items(mapping_items(state["objects"], reader)[name], reader)
    content = converter_for(Any).decode(entries["state_dict"], reader)
    reader.raise_problems()
    return content

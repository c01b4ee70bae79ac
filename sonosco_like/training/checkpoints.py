"""The checkpoints of a run: complete or not there, found again after any crash, kept as long as they are wanted."""

from __future__ import annotations

import functools
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaml.nodes import Node

from sonosco_like.inference.checkpoints import checkpoints_of, is_intact, name_strangers, own_final, pointed
from sonosco_like.run_folder import BEST, CHECKPOINTS, LATEST, name_of
from sonosco_like.serialization import files
from sonosco_like.serialization.context import Reader
from sonosco_like.serialization.converter import is_mapping, mapping_items
from sonosco_like.serialization.folder import STATE, of_one_piece, open_tensors, read_state
from sonosco_like.serialization.types import converter_for
from sonosco_like.training.used_weights import PARTS

logger = logging.getLogger(__name__)


class Checkpoints:
    """The folder `checkpoints/` of a run and the pointers `latest` and `best` beside it."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / CHECKPOINTS

    def path_of(self, step: int) -> Path:
        """Where the checkpoint of a step is, or will be."""
        return self.folder / name_of(step)

    def all(self) -> list[Path]:
        """Every checkpoint of this run, the oldest first."""
        return checkpoints_of(self.run)

    def newest(self) -> Path | None:
        """The newest checkpoint that is intact; damaged ones and those of others are named and passed over."""
        name_strangers(self.run)
        return next((path for path in reversed(self.all()) if is_intact(path)), None)

    def final(self) -> Path | None:
        """The trainer at the end of the run, if it is there and intact."""
        found = own_final(self.run)
        return found if found is not None and is_intact(found) else None

    def best(self) -> Path | None:
        """The best checkpoint that is intact, as the newest one knows; None if the run ranks none."""
        newest = self.newest()
        ranked = map(self.path_of, _best_steps(newest)) if newest is not None else iter(())
        own = set(self.all())
        return next((path for path in ranked if path in own and is_intact(path)), None)

    def point(self, name: str, path: Path) -> None:
        """Have `latest` or `best` name a checkpoint."""
        content = f"{CHECKPOINTS}/{path.name}\n".encode()
        pointer = self.run / name
        if files.differs(pointer, content):
            files.replace_file(pointer, content)

    def pointed(self, name: str) -> Path | None:
        """The checkpoint that `latest` or `best` names, if it names one that is there."""
        return pointed(self.run / name)

    def repair(self) -> None:
        """Have `latest` and `best` name the newest and the best intact checkpoint, whatever they name now."""
        for name, path in ((LATEST, self.newest()), (BEST, self.best())):
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

    def weights_at(self, step: int) -> dict[str, Any] | None:
        """The states of the parts that hold weights at a step, by name; None if there is no intact checkpoint of it."""
        path = self.path_of(step)
        if path not in self.all() or not is_intact(path):
            return None
        states = {name: of_one_piece(path, functools.partial(state_dict_of, name=name)) for name in PARTS}
        return {name: state for name, state in states.items() if state}


def state_dict_of(checkpoint: Path, name: str) -> dict[str, Any]:
    """The state of one part of a saved trainer, such as `model`; no class of the run has to be known. {} if none."""
    state = read_state(checkpoint)
    reader = Reader(str(checkpoint / STATE), open_tensors(checkpoint, state))
    node: Any = state["objects"]
    for key in (name, "state_dict"):
        node = mapping_items(node, reader).get(key) if is_mapping(node) else None
    content = None if node is None else converter_for(Any).decode(node, reader)
    reader.raise_problems()
    return content if isinstance(content, dict) else {}


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

"""Parts of a saved trainer, read without the rest.

To hear, one needs the model, the features, the alphabet and the decoder. The data, the optimizer's moments, the
callbacks and their files stay where they are, so a run can be used on a machine that never saw what it was trained on.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sonosco_like.errors import UsageError
from sonosco_like.serialization.context import INVALID, Reader, TooManyProblems, join_path
from sonosco_like.serialization.converter import mapping_items
from sonosco_like.serialization.folder import (
    GRAPH,
    STATE,
    of_one_piece,
    open_tensors,
    read_graph,
    read_state,
    restore_object,
)
from sonosco_like.serialization.graph import walk
from sonosco_like.serialization.scalars import INT, NULL, STR, kind_of
from sonosco_like.serialization.states import parts_covered
from sonosco_like.serialization.tensors import TensorReader
from sonosco_like.serialization.types import converter_for, plan_of


class SavedTrainer:
    """A checkpoint whose files are whole, of which parts can be read by their path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._graph, self._states, self._tensors = of_one_piece(folder, _contents)

    def has(self, path: str) -> bool:
        """Whether there is something at a path such as `train_data_loader.dataset`."""
        node = self._node(path)
        return node is not None and not (isinstance(node, ScalarNode) and kind_of(node) == NULL)

    def read(self, kinds: dict[str, Any]) -> list[Any]:
        """The objects at these paths, each of the type that is asked for, with everything a run changed in them.

        Raises ConfigError with all that is wrong with any of them.
        """
        reader = Reader(str(self.folder / GRAPH), self._tensors)
        made = []
        with suppress(TooManyProblems):
            for path, kind in kinds.items():
                reader.parts = [*path.split(".")]
                node = self._node(path)
                if node is None:
                    raise UsageError(f"{self.folder / GRAPH} has no {path!r}: it is not a trainer of recognisers.")
                made.append(converter_for(kind).decode(node, reader))
        reader.raise_problems()
        self._restore(made, {id(value): node for (node, _), value in reader.memo.items() if value is not INVALID})
        return made

    @property
    def step(self) -> int:
        """The step the trainer was at; -1 if it does not say."""
        node = _child(self._states.get(""), "global_step")
        return int(node.value) if isinstance(node, ScalarNode) and kind_of(node) == INT else -1

    def state(self, name: str) -> dict[str, Any]:
        """One entry, of plain values, in the `state_dict` of the trainer itself; empty without one."""
        node = _child(_child(self._states.get(""), "state_dict"), name)
        reader = Reader(str(self.folder / STATE))
        found = converter_for(dict[str, Any]).decode(node, reader) if isinstance(node, MappingNode) else {}
        return found if isinstance(found, dict) else {}

    def text(self, path: str) -> str:
        """The text at a path; nothing if there is none."""
        node = self._node(path)
        return str(node.value) if isinstance(node, ScalarNode) and kind_of(node) == STR else ""

    def tensors_of(self, class_name: str, name: str) -> dict[str, Tensor]:
        """The tensors by name in one entry of the `state_dict` of the first object of a class; empty without one."""
        for node in self._states.values():
            tag = _child(node, "class")
            if isinstance(tag, ScalarNode) and tag.value.partition("@")[0] == class_name:
                entry = _child(_child(node, "state_dict"), name)
                found: Any = {}
                if isinstance(entry, MappingNode):
                    reader = Reader(str(self.folder / STATE), self._tensors)
                    found = converter_for(Any).decode(entry, reader)
                    reader.raise_problems()
                return dict(found)
        return {}

    def _node(self, path: str) -> Node | None:
        node: Node | None = self._graph
        for part in path.split("."):
            node = _child(node, part)
        return node

    def _restore(self, made: list[Any], nodes: dict[int, int]) -> None:
        """Give each object its state, which is kept under the first path that the object has in the whole graph."""
        reader = Reader(str(self.folder / STATE), self._tensors)
        paths = _first_paths(self._graph)
        objects = [value for _, value in walk(made)]
        covered = set().union(*(parts_covered(value, plan_of(type(value))) for value in objects))
        with suppress(TooManyProblems):
            for value in reversed(objects):  # parts before the whole
                parts = paths[nodes[id(value)]]
                reader.parts = list(parts)
                node = self._states.get(join_path(parts))
                if node is None:
                    reader.problem(self._graph, f"has no state for this {type(value).__name__}")
                else:
                    restore_object(value, node, reader, id(value) in covered)
        reader.raise_problems()


def _contents(folder: Path) -> tuple[Node, dict[str, Node], TensorReader]:
    """The graph, the state of each object by its path, and the tensors: all of one save, each checked by its hash."""
    state = read_state(folder)
    reader = Reader(str(folder / STATE))
    objects = mapping_items(state["objects"], reader)
    reader.raise_problems()
    return read_graph(folder, state), objects, open_tensors(folder, state)


def _child(node: Node | None, name: str) -> Node | None:
    entries = node.value if isinstance(node, MappingNode) else ()
    return next((value for key, value in entries if isinstance(key, ScalarNode) and key.value == name), None)


def _first_paths(root: Node) -> dict[int, tuple[Any, ...]]:
    """Where each node is met first, in the order in which objects are saved."""
    paths: dict[int, tuple[Any, ...]] = {}
    stack: list[tuple[tuple[Any, ...], Node]] = [((), root)]
    while stack:
        path, node = stack.pop()
        if id(node) in paths:
            continue
        paths[id(node)] = path
        children: list[tuple[Any, Node]] = []
        if isinstance(node, MappingNode):
            children = [(key.value, value) for key, value in node.value]
        elif isinstance(node, SequenceNode):
            children = list(enumerate(node.value))
        stack.extend(((*path, part), child) for part, child in reversed(children))
    return paths

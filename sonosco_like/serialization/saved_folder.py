"""`Saved`: a checkpoint folder, opened once; the whole or parts of it are read by path. `load`, `restore`, `verify`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from yaml.nodes import Node, ScalarNode

from sonosco_like.errors import ConfigError, StorageError, UsageError
from sonosco_like.serialization.converter import Reader, TooManyProblems, mapping_items, walk
from sonosco_like.serialization.document import Document, ValuePath
from sonosco_like.serialization.files import (
    absolute_path,
    detect_replacement,
    hash_file,
    read_file,
    restore_previous,
)
from sonosco_like.serialization.folder_format import GRAPH_FILE, TENSOR_FILE, Origin, StateFile
from sonosco_like.serialization.nodes import Parts, Plain, is_mapping, join_path, node_at, split_path, walk_nodes
from sonosco_like.serialization.objects import CLASS, STATE_DICT, find_registration, parts_covered, restore_states
from sonosco_like.serialization.registry import REGISTRY, fits
from sonosco_like.serialization.types import converter_for, plan_of

if TYPE_CHECKING:
    from torch import Tensor

    from sonosco_like.serialization.tensors import TensorReader

T = TypeVar("T")

_READINGS = 1000  # at most, of a folder that others replace all the while


class Saved:
    """A saved object graph, such as a checkpoint. Its files come from one save, are complete, and match their hashes.

        saved = Saved(Path("runs/digits/checkpoints/step-00000400"))
        saved.origin                                     # the run and the step it is of
        saved.has("decoder")                             # whether the trainer has one
        saved.get("model.class")                         # "LAS", as plain data
        saved.read("model", LAS)                         # a part, with what the run changed in it
        saved.state("", "position", "global_step")       # 400; no class of the run has to be known
        saved.tensors("model")                           # the weights by name
        trainer = saved.build(ModelTrainer)              # the whole
        saved.restore_into(trainer)                      # its state only, into a graph that is there already

    Opening hashes the tensor file. Without `tensors` it stays closed, and what refers to a tensor cannot be read.
    """

    def __init__(self, folder: str | Path, tensors: bool = True) -> None:
        self.folder = absolute_path(folder)
        found = read_consistently(self.folder, lambda place: _Contents(place, tensors))
        self._text, self.state_file, self.tensor_file = found.text, found.state, found.tensors
        self._source = str(self.folder / GRAPH_FILE)
        self.graph = self.settings()

    @property
    def origin(self) -> Origin | None:
        """The run and the step it belongs to; None if it was not saved by a run."""
        return self.state_file.origin

    def settings(self, overrides: Iterable[str] = ()) -> Document:
        """The constructor fields of the whole graph as a document with `overrides` applied; without any state."""
        return Document.parse(self._text, self._source, overrides, self.tensor_file)

    def leaves(self) -> dict[str, str]:
        """The constructor fields of the whole graph by path, as `Document.leaves`."""
        return self.graph.leaves()

    def get(self, path: ValuePath) -> Plain:
        """The constructor field at a path such as `train_data_loader.dataset` as plain data; None if there is none."""
        return self.graph.get(path)

    def has(self, path: ValuePath) -> bool:
        """Whether there is a value at a path that is not null."""
        return self.get(path) is not None

    @overload
    def read(self, path: str, expected: type[T]) -> T: ...
    @overload
    def read(self, path: str, expected: Any) -> Any: ...
    def read(self, path: str, expected: Any) -> Any:
        """The object at a path, of the given type, with everything that the run changed in it."""
        return self.read_all({path: expected})[0]

    def read_all(self, expected: dict[str, Any]) -> list[Any]:
        """The objects at several paths, each of the given type; parts that they share stay shared.

        Raises UsageError if there is nothing at a path, and ConfigError with all that is wrong with any of them.
        """
        reader = Reader(self._source, self.tensor_file)
        made = []
        with suppress(TooManyProblems):
            for path, kind in expected.items():
                reader.parts = split_path(path)
                node = node_at(self.graph.root, reader.parts)
                if node is None:
                    raise UsageError(f"{self._source} has no {path!r}: it is not a trainer of recognisers.")
                made.append(converter_for(kind).decode(node, reader))
        reader.raise_problems()
        self._restore_parts(made, {id(value): id(node) for node, value in reader.memo.values()})
        return made

    def paths(self, base: Any = object) -> list[str]:
        """The paths of all objects whose class is known and derives from `base`; an object before its parts."""
        return [path for path, node in self.state_file.objects.items() if _is_a(node, base)]

    def state(self, path: str, *names: str, expected: Any = Any) -> Any:
        """An entry of what the run changed in the object at a path, or an entry of that, and so on; None without one.

        `state("model", "state_dict")` are the weights, `state("", "position", "global_step")` is the step of a trainer.
        """
        node = node_at(self.state_file.objects.get(path), names)
        if node is None:
            return None
        reader = self._state_reader()
        reader.parts = [*split_path(path), *names]
        value = None
        with suppress(TooManyProblems):
            value = converter_for(expected).decode(node, reader)
        reader.raise_problems()
        return value

    def tensors(self, path: str) -> dict[str, Tensor]:
        """The tensors by name in the `state_dict` of the object at a path: the weights of a module."""
        from torch import Tensor

        content = self.state(path, STATE_DICT) or {}
        return {name: value for name, value in content.items() if isinstance(value, Tensor)}

    @overload
    def build(self, expected: type[T]) -> T: ...
    @overload
    def build(self, expected: Any = ...) -> Any: ...
    def build(self, expected: Any = None) -> Any:
        """The whole graph, with everything that the run changed in it."""
        value = self.graph.build(expected)
        self.restore_into(value)
        return value

    def restore_into(self, graph: Any) -> None:
        """Give an existing graph the saved state. Raises ConfigError with a list if the two do not fit."""
        reader = self._state_reader()
        objects = list(walk(graph))
        saved = self.state_file.objects
        reader.objects = {join_path(parts): value for parts, value in objects}
        former = {join_path(_former_path(parts, reader.objects)): value for parts, value in objects}
        reader.objects.update((path, former[path]) for path in saved if path in former)
        with suppress(TooManyProblems):
            for path in [path for path in saved if path not in reader.objects]:
                place = path[:100] or "the whole"
                reader.problem(saved[path], f"holds the state of {place!r}, which this graph does not have")
            self._restore(objects, reader)
        reader.raise_problems()

    def _restore_parts(self, made: list[Any], nodes: dict[int, int]) -> None:
        """Give each object its state, which is kept under the first path that the object has in the whole graph."""
        reader = self._state_reader()
        paths: dict[int, Parts] = {}
        for _ in walk_nodes(self.graph.root, first=paths):
            pass
        with suppress(TooManyProblems):
            self._restore([(paths[nodes[id(value)]], value) for _, value in walk(made)], reader)
        reader.raise_problems()

    def _restore(self, objects: list[tuple[Parts, Any]], reader: Reader) -> None:
        covered = set().union(*(parts_covered(value, plan_of(type(value))) for _, value in objects))
        by_path = {join_path(parts): value for parts, value in objects}
        for parts, value in reversed(objects):  # parts before the whole
            reader.parts = list(parts)
            saved = self.state_file.objects
            node = saved.get(join_path(parts)) or saved.get(join_path(_former_path(parts, by_path)))
            if node is None:
                reader.problem(self.state_file.node, f"has no state for this {type(value).__name__}")
            else:
                _restore_object(value, node, reader, id(value) in covered)

    def _state_reader(self) -> Reader:
        return Reader(str(self.state_file.path), self.tensor_file)


def _former_path(parts: Parts, objects: dict[str, Any]) -> Parts:
    """The path that an object had before fields on the way to it were renamed (`former_names` of their classes)."""
    owners = (type(objects.get(join_path(parts[:place]))) for place in range(len(parts)))
    return tuple(getattr(owner, "former_names", {}).get(part, part) for owner, part in zip(owners, parts, strict=True))


@overload
def load(path: str | Path, expected: type[T]) -> T: ...
@overload
def load(path: str | Path, expected: Any = ...) -> Any: ...
def load(path: str | Path, expected: Any = None) -> Any:
    """The graph that was saved at `path`, with everything that the run changed in it."""
    return open_saved(path).build(expected)


def open_saved(path: str | Path) -> Saved | Document:
    """The opened folder at `path`, or the document of a single YAML file."""
    return read_consistently(
        absolute_path(path), lambda place: Saved(place) if place.is_dir() else Document.read(place)
    )


def restore(value: Any, path: str | Path) -> None:
    """Give an existing graph the state saved at `path`. Raises ConfigError with a list if the two do not fit."""
    Saved(path).restore_into(value)


def verify(path: str | Path) -> None:
    """Raise StorageError or ConfigError unless the three files at `path` are whole and belong together."""

    def check(folder: Path) -> None:
        state = StateFile(folder)
        for name in (GRAPH_FILE, TENSOR_FILE):
            state.check_hash(folder / name, hash_file(folder / name))

    read_consistently(absolute_path(path), check)


def read_consistently(path: Path, read: Callable[[Path], T]) -> T:
    """The result of `read` for a saved object; it is read again if another save took its place meanwhile.

    So a reader gets the old one or the new one, also while another process saves, and never a mixture.
    """
    for _ in range(_READINGS):
        restore_previous(path)
        with detect_replacement(path) as is_unchanged:
            try:
                value = read(path)
            except (StorageError, ConfigError):
                if is_unchanged():
                    raise
            else:
                if is_unchanged():
                    return value
    raise StorageError(f"{path} was replaced {_READINGS} times while it was read; read it when no process saves there.")


class _Contents:
    """The content of the files of a folder, all from one save and checked by their hashes."""

    def __init__(self, folder: Path, tensors: bool) -> None:
        self.state = StateFile(folder)
        self.text = read_file(folder / GRAPH_FILE)
        self.state.check_hash(folder / GRAPH_FILE, hashlib.sha256(self.text).hexdigest())
        self.tensors: TensorReader | None = None
        if tensors:
            from sonosco_like.serialization.tensors import TensorReader

            self.state.check_hash(folder / TENSOR_FILE, hash_file(folder / TENSOR_FILE))
            self.tensors = TensorReader(folder / TENSOR_FILE)


def _restore_object(value: Any, node: Node, reader: Reader, covered: bool) -> None:
    """Give one object the state in its entry of the state file; weights may be `covered` by a module around it."""
    class_node = mapping_items(node, reader).get(CLASS) if is_mapping(node) else None
    if class_node is None:
        reader.problem(node, "expected a mapping with `class`")
        return
    found = find_registration(class_node, CLASS, reader, list)
    if not isinstance(found, tuple):
        return
    if found[0].target is not type(value):
        reader.problem(
            class_node, f"holds the state of a {found[0].name}, but this graph has a {type(value).__name__} here"
        )
        return
    restore_states(value, plan_of(type(value)), *found, node, reader, complete=True, covered=covered)


def _is_a(node: Node, base: Any) -> bool:
    name = node_at(node, (CLASS,))
    found = REGISTRY.find(name.value.partition("@")[0]) if isinstance(name, ScalarNode) else None
    return found is not None and fits(found.target, base)

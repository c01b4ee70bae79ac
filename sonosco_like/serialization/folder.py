"""`save` and `load`: an object graph as a folder of three files, or as one YAML file.

trainer.yaml          constructor fields of the whole graph, defaults too
state.yaml            what a run changed, by path in the graph; hashes of the other two files; its own hash last.
                      A checkpoint of a run also has its `origin` there: which run, which step, computed with what
tensors.safetensors   every tensor
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from yaml.nodes import Node, ScalarNode

from sonosco_like.errors import ConfigError, Problem, StorageError, UsageError
from sonosco_like.passwords import masked
from sonosco_like.serialization import files
from sonosco_like.serialization.context import Reader, TooManyProblems, Writer, join_path
from sonosco_like.serialization.converter import is_mapping, mapping_items, mapping_node
from sonosco_like.serialization.document import MAX_BYTES, parse, write
from sonosco_like.serialization.graph import Parts, walk
from sonosco_like.serialization.objects import find_entry
from sonosco_like.serialization.origin import Origin, origin_of
from sonosco_like.serialization.registry import REGISTRY
from sonosco_like.serialization.scalars import INT, STR
from sonosco_like.serialization.states import encode_states, parts_covered, restore_states
from sonosco_like.serialization.text import decode, dumps, loads
from sonosco_like.serialization.types import converter_for, plan_of

if TYPE_CHECKING:
    from torch import Tensor

    from sonosco_like.serialization.tensors import TensorReader

    Tensors = dict[str, Tensor]

T = TypeVar("T")

GRAPH, STATE, TENSORS = "trainer.yaml", "state.yaml", "tensors.safetensors"
FORMAT = 1
_ORIGIN = "origin"
_SEAL = "sha256: "
_READINGS = 1000  # at most, of a folder that others replace all the while


class Snapshot:
    """An object graph at one moment, ready to be written. Taking it is quick; writing it may happen elsewhere.

    `detach=True` copies the tensors, so that what it was taken of may change before it is written. So does a function,
    which is given the tensors by name and returns their copies. `origin` says which run and step it is of.
    """

    def __init__(
        self, value: Any, detach: bool | Callable[[Tensors], Tensors] = False, origin: Origin | None = None
    ) -> None:
        from sonosco_like.serialization.tensors import TensorWriter

        self._origin = origin
        source = type(value).__qualname__
        self._tensors = TensorWriter()
        graph = Writer(source, self._tensors, with_state=False)
        self._graph = converter_for(Any).encode(value, graph)
        state = Writer(source, self._tensors)
        self._objects = _encode_objects(value, state)
        state.problems[:0] = graph.problems
        state.raise_problems()
        if callable(detach):
            self._tensors.tensors = detach(self._tensors.tensors)
        elif detach:
            self._tensors.detach()

    def write(self, path: str | Path) -> None:
        """Write the folder: complete and on disk when this returns, or not there at all."""
        path = files.absolute(path)
        _refuse_to_replace(path)
        with files.new_folder(path) as folder:
            text = write(self._graph)
            graph = text.encode()
            files.write_file(folder / GRAPH, graph, private=masked(text) != text)
            hashes = {GRAPH: hashlib.sha256(graph).hexdigest(), TENSORS: self._tensors.write(folder / TENSORS)}
            files.write_file(folder / STATE, self._state_text(hashes))

    def _state_text(self, hashes: dict[str, str]) -> bytes:
        origin = [] if self._origin is None else [(_text(_ORIGIN), self._origin.node())]
        entries: list[tuple[Node, Node]] = [
            (_text("format"), ScalarNode(INT, str(FORMAT))),
            *origin,
            (_text("files"), mapping_node([(_text(name), _text(digest)) for name, digest in hashes.items()])),
            (_text("objects"), self._objects),
        ]
        text = write(mapping_node(entries)).encode()
        return text + f"{_SEAL}{hashlib.sha256(text).hexdigest()}\n".encode()


def save(value: Any, path: str | Path) -> None:
    """Save an object graph: to a single file if `path` ends in `.yaml`, else to a folder that may hold tensors."""
    path = files.absolute(path)
    if path.suffix in (".yaml", ".yml"):
        files.replace_file(path, dumps(value).encode())
    else:
        Snapshot(value).write(path)


def _refuse_to_replace(path: Path) -> None:
    """Only a saved object, or nothing, is replaced by a save; a mistyped path must not cost anybody their files."""
    is_ours = path.is_dir() and ((path / STATE).exists() or not any(path.iterdir()))
    if path.exists() and not is_ours:
        raise UsageError(f"{path} exists and is not a saved object; choose another place, or remove it first.")


@overload
def load(path: str | Path, expected: type[T]) -> T: ...
@overload
def load(path: str | Path, expected: Any = ...) -> Any: ...
def load(path: str | Path, expected: Any = None) -> Any:
    """What was saved at `path`: the same graph, with everything a run changed in it."""
    return of_one_piece(files.absolute(path), lambda place: _load(place, expected))


def _load(path: Path, expected: Any) -> Any:
    if not path.is_dir():
        return loads(files.read_file(path, MAX_BYTES), expected, source=str(path))
    state = read_state(path)
    graph = read_graph(path, state)
    tensors = open_tensors(path, state)
    value = decode(graph, expected, Reader(str(path / GRAPH), tensors))
    _restore(value, path, state, tensors)
    return value


def verify(path: str | Path) -> None:
    """Raise StorageError or ConfigError unless the three files at `path` are whole and belong together."""
    of_one_piece(files.absolute(path), _verify)


def _verify(path: Path) -> None:
    state = read_state(path)
    for name in (GRAPH, TENSORS):
        _check_hash(path / name, files.hash_file(path / name), state)


def restore(value: Any, path: str | Path) -> None:
    """Give an existing graph the state saved at `path`; refused with a list if the two do not fit."""

    def read(place: Path) -> None:
        state = read_state(place)
        _restore(value, place, state, open_tensors(place, state))

    of_one_piece(files.absolute(path), read)


def of_one_piece(path: Path, read: Callable[[Path], T]) -> T:
    """What `read` makes of a saved object; read again if another save took its place meanwhile.

    So a reader gets the old one or the new one, also while another process saves, and never some of both.
    """
    for _ in range(_READINGS):
        files.restore_previous(path)
        with files.unchanged(path) as is_unchanged:
            try:
                value = read(path)
            except (StorageError, ConfigError):
                if is_unchanged():
                    raise
            else:
                if is_unchanged():
                    return value
    raise StorageError(f"{path} was replaced {_READINGS} times while it was read; read it when nobody saves there.")


def _encode_objects(root: Any, writer: Writer) -> Node:
    objects = list(walk(root))
    writer.objects = {id(value): join_path(parts) for parts, value in objects}
    entries: list[tuple[Node, Node]] = []
    for parts, value in objects:
        entry = REGISTRY.entry_of(type(value))
        plan = plan_of(type(value))
        assert entry is not None
        writer.covered |= parts_covered(value, plan)
        writer.parts = list(parts)
        items = encode_states(value, plan, writer)
        entries.append((_text(join_path(parts)), mapping_node([(_text("class"), _text(entry.tag)), *items])))
    return mapping_node(entries)


def read_graph(folder: Path, state: dict[str, Node]) -> Node:
    """The root node of a folder's graph, once its hash was checked."""
    content = files.read_file(folder / GRAPH, MAX_BYTES)
    _check_hash(folder / GRAPH, hashlib.sha256(content).hexdigest(), state)
    return parse(content, str(folder / GRAPH))


def open_tensors(folder: Path, state: dict[str, Node]) -> TensorReader:
    """The tensor file of a folder, once its hash was checked."""
    from sonosco_like.serialization.tensors import TensorReader

    _check_hash(folder / TENSORS, files.hash_file(folder / TENSORS), state)
    return TensorReader(folder / TENSORS)


def _restore(root: Any, folder: Path, state: dict[str, Node], tensors: TensorReader) -> None:
    reader = Reader(str(folder / STATE), tensors)
    objects = list(walk(root))
    reader.objects = {join_path(parts): value for parts, value in objects}
    saved = mapping_items(state["objects"], reader)
    with suppress(TooManyProblems):
        _restore_all(objects, saved, state, reader)
    reader.raise_problems()


def _restore_all(
    objects: list[tuple[Parts, Any]], saved: dict[str, Node], state: dict[str, Node], reader: Reader
) -> None:
    covered = set().union(*(parts_covered(value, plan_of(type(value))) for _, value in objects))
    for path in [path for path in saved if path not in reader.objects]:
        reader.problem(saved[path], f"holds the state of {path[:100] or 'the whole'!r}, which this graph does not have")
    for parts, value in reversed(objects):  # parts before the whole
        path = join_path(parts)
        reader.parts = list(parts)
        if path not in saved:
            reader.problem(state["objects"], f"has no state for this {type(value).__name__}")
            continue
        restore_object(value, saved[path], reader, id(value) in covered)


def restore_object(value: Any, node: Node, reader: Reader, covered: bool) -> None:
    """Give one object what its entry in the state file holds; weights may be `covered` by a module around it."""
    class_node = mapping_items(node, reader).get("class") if is_mapping(node) else None
    if class_node is None:
        reader.problem(node, "expected a mapping with `class`")
        return
    found = find_entry(class_node, "class", reader, [])
    if not isinstance(found, tuple):
        return
    if found[0].target is not type(value):
        reader.problem(
            class_node, f"holds the state of a {found[0].name}, but this graph has a {type(value).__name__} here"
        )
        return
    restore_states(value, plan_of(type(value)), *found, node, reader, complete=True, covered=covered)


def read_state(folder: Path) -> dict[str, Node]:
    """The entries of a folder's state file, once its seal was checked."""
    path = folder / STATE
    reader = Reader(str(path))
    node = parse(_sealed(folder), str(path))
    state = mapping_items(node, reader) if is_mapping(node) else {}
    reader.raise_problems()
    if problem := _wrong_form(state):
        raise ConfigError([Problem(problem, source=str(path))])
    return state


def read_origin(folder: Path) -> Origin | None:
    """Which run and step a saved trainer is of, once the seal was checked; None if it was not saved by a run.

    Only the beginning of the state file is read, which is cheap however much state there is.
    """
    if not folder.is_dir():
        raise StorageError(f"{folder} does not exist or is not a folder.")
    return origin_in(files.read_file(folder / STATE, MAX_BYTES), str(folder / STATE))


def origin_in(content: bytes, source: str) -> Origin | None:
    """The origin in the content of a state file, once its seal was checked."""
    node = parse(_unsealed(content, source).partition(b"\nfiles:")[0], source)
    entries = node.value if is_mapping(node) else ()
    found = next((value for key, value in entries if key.value == _ORIGIN), None)
    return None if found is None else origin_of(found, source)


def _sealed(folder: Path) -> bytes:
    """The content of a folder's state file without its seal, which was checked."""
    path = folder / STATE
    if not folder.is_dir():
        raise StorageError(f"{folder} does not exist or is not a folder.")
    return _unsealed(files.read_file(path, MAX_BYTES), str(path))


def _unsealed(content: bytes, source: str) -> bytes:
    body, mark, seal = content.rpartition(_SEAL.encode())
    if not mark or seal != f"{hashlib.sha256(body).hexdigest()}\n".encode():
        raise StorageError(
            f"{source} is torn or was changed after it was saved: its last line does not match its content."
        )
    return body


def _wrong_form(state: dict[str, Node]) -> str:
    """What keeps the entries of a state file from being read, or nothing."""
    complete = (
        set(state) - {_ORIGIN} == {"format", "files", "objects"}
        and is_mapping(state["files"])
        and is_mapping(state["objects"])
        and is_mapping(state.get(_ORIGIN, state["files"]))
    )
    if not complete or {str(key.value) for key, _ in state["files"].value} != {GRAPH, TENSORS}:
        return f"does not hold exactly `format`, `files` ({GRAPH}, {TENSORS}) and `objects`"
    if state["format"].value != str(FORMAT):
        return f"is of format {state['format'].value}, this package reads {FORMAT}; update sonosco_like"
    return ""


def _check_hash(path: Path, found: str, state: dict[str, Node]) -> None:
    if not any(key.value == path.name and value.value == found for key, value in state["files"].value):
        raise StorageError(
            f"{path} is torn or was changed after it was saved (its SHA-256 is not the one in {STATE}). "
            f"Use another checkpoint."
        )


def _text(value: str) -> ScalarNode:
    return ScalarNode(STR, value)

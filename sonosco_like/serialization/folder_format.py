"""The folder of a saved object graph: three files, written from a `Snapshot`, and the checks of its state file.

trainer.yaml          constructor fields of the whole graph, defaults too
state.yaml            what a run changed, by path in the graph; with the format, the origin and the hashes of the files
tensors.safetensors   every tensor

The last line of the state file is its own hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaml.nodes import Node, ScalarNode

from sonosco_like.errors import ConfigError, Problem, StorageError, UsageError
from sonosco_like.redaction import mask_secrets
from sonosco_like.serialization.converter import Reader, Writer, mapping_items, walk
from sonosco_like.serialization.document import dumps
from sonosco_like.serialization.files import absolute_path, new_folder, read_file, replace_file, write_file
from sonosco_like.serialization.nodes import (
    child_nodes,
    is_list,
    is_mapping,
    join_path,
    list_node,
    mapping_node,
    node_at,
    text_node,
)
from sonosco_like.serialization.objects import CLASS, encode_states, parts_covered
from sonosco_like.serialization.registry import REGISTRY
from sonosco_like.serialization.types import converter_for, plan_of
from sonosco_like.serialization.yaml_text import INT, parse, write

if TYPE_CHECKING:
    from torch import Tensor

    Tensors = dict[str, Tensor]

GRAPH_FILE, STATE_FILE, TENSOR_FILE = "trainer.yaml", "state.yaml", "tensors.safetensors"
_FORMAT = "1"
_ORIGIN = "origin"
_SEAL = "sha256: "
_STEP = re.compile(r"\d{1,18}")


@dataclass(frozen=True)
class Origin:
    """Where a saved trainer comes from: the id of its run, its step, what computed it, and the best steps so far.

    `best` is None in a checkpoint of an older version, which does not hold the ranking.
    """

    run: str
    step: int
    computed_with: Mapping[str, str] = field(default_factory=dict)
    best: tuple[int, ...] | None = None

    def node(self) -> Node:
        """The entry of the state file."""
        machine = mapping_node([(text_node(name), text_node(value)) for name, value in self.computed_with.items()])
        entries: list[tuple[Node, Node]] = [
            (text_node("run"), text_node(self.run)),
            (text_node("step"), ScalarNode(INT, str(self.step))),
            (text_node("computed_with"), machine),
        ]
        if self.best is not None:
            entries.append((text_node("best"), list_node([ScalarNode(INT, str(step)) for step in self.best])))
        return mapping_node(entries)


class StateFile:
    """The entries of a state file whose seal was checked."""

    def __init__(self, folder: Path) -> None:
        """Raises StorageError if the file is not whole, ConfigError if it is not of this format."""
        self.path = folder / STATE_FILE
        if not folder.is_dir():
            raise StorageError(f"{folder} does not exist or is not a folder.")
        reader = Reader(str(self.path))
        node = parse(_check_seal(read_file(self.path), str(self.path)), str(self.path))
        self._entries = mapping_items(node, reader) if is_mapping(node) else {}
        reader.raise_problems()
        if problem := _wrong_form(self._entries):
            raise ConfigError([Problem(problem, source=str(self.path))])
        self.objects = mapping_items(self._entries["objects"], reader)
        reader.raise_problems()

    @property
    def node(self) -> Node:
        """The entry that holds all objects, for messages about what is missing in it."""
        return self._entries["objects"]

    @property
    def origin(self) -> Origin | None:
        """The run and the step it belongs to; None if it was not saved by a run."""
        return _origin_of(self._entries.get(_ORIGIN), str(self.path))

    def check_hash(self, path: Path, digest: str) -> None:
        """Raise StorageError unless this is the hash of a file that the state file holds."""
        known = node_at(self._entries["files"], (path.name,))
        if known is None or known.value != digest:
            raise StorageError(
                f"{path} is torn or was changed after it was saved (its SHA-256 is not the one in {STATE_FILE}). "
                f"Use another checkpoint."
            )


def state_text(objects: Node, hashes: Mapping[str, str], origin: Origin | None) -> bytes:
    """The content of a state file."""
    entries: list[tuple[Node, Node]] = [
        (text_node("format"), ScalarNode(INT, _FORMAT)),
        *([] if origin is None else [(text_node(_ORIGIN), origin.node())]),
        (text_node("files"), mapping_node([(text_node(name), text_node(digest)) for name, digest in hashes.items()])),
        (text_node("objects"), objects),
    ]
    text = write(mapping_node(entries)).encode()
    return text + f"{_SEAL}{hashlib.sha256(text).hexdigest()}\n".encode()


def read_origin(folder: Path) -> Origin | None:
    """The run and the step of a saved trainer, after its seal was checked; None if it was not saved by a run.

    Only the beginning of the state file is parsed, which is quick also if there is much state.
    """
    if not folder.is_dir():
        raise StorageError(f"{folder} does not exist or is not a folder.")
    return parse_origin(read_file(folder / STATE_FILE), str(folder / STATE_FILE))


def parse_origin(content: bytes, source: str) -> Origin | None:
    """The origin in the content of a state file, after its seal was checked."""
    root = parse(_check_seal(content, source).partition(b"\nfiles:")[0], source)
    return _origin_of(node_at(root, (_ORIGIN,)) if is_mapping(root) else None, source)


def _origin_of(node: Node | None, source: str) -> Origin | None:
    if node is None:
        return None
    entries = dict(child_nodes(node))
    run, step = entries.get("run"), entries.get("step")
    if not (isinstance(run, ScalarNode) and isinstance(step, ScalarNode) and _STEP.fullmatch(step.value)):
        raise ConfigError([Problem("`origin` does not contain the `run` and the `step`", source=source)])
    machine = child_nodes(entries.get("computed_with"))
    computed_with = {name: each.value for name, each in machine if isinstance(each, ScalarNode)}
    return Origin(run.value, int(step.value), computed_with, _steps_of(entries.get("best")))


def _steps_of(node: Node | None) -> tuple[int, ...] | None:
    if node is None or not is_list(node):
        return None
    return tuple(int(each.value) for each in node.value if isinstance(each, ScalarNode) and _STEP.fullmatch(each.value))


def _check_seal(content: bytes, source: str) -> bytes:
    """The content of a state file without its last line, which must hold the hash of the rest."""
    body, mark, seal = content.rpartition(_SEAL.encode())
    if not mark or seal != f"{hashlib.sha256(body).hexdigest()}\n".encode():
        raise StorageError(
            f"{source} is torn or was changed after it was saved: its last line does not match its content."
        )
    return body


def _wrong_form(entries: dict[str, Node]) -> str:
    """The reason why the entries of a state file cannot be read; empty if there is none."""
    complete = (
        set(entries) - {_ORIGIN} == {"format", "files", "objects"}
        and is_mapping(entries["files"])
        and is_mapping(entries["objects"])
        and is_mapping(entries.get(_ORIGIN, entries["files"]))
    )
    if not complete or {str(name) for name, _ in child_nodes(entries["files"])} != {GRAPH_FILE, TENSOR_FILE}:
        return f"does not hold exactly `format`, `files` ({GRAPH_FILE}, {TENSOR_FILE}) and `objects`"
    if entries["format"].value != _FORMAT:
        return f"is of format {entries['format'].value}, this package reads {_FORMAT}; update sonosco_like"
    return ""


class Snapshot:
    """An object graph at one moment, ready to be written. Taking it is quick; writing it may happen elsewhere.

    `detach=True` copies the tensors, so that the graph may change before the snapshot is written. So does a function,
    which is given the tensors by name and returns their copies. `origin` is the run and the step of the graph.
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

    @property
    def tensors(self) -> Tensors:
        """The tensors by the names they have in the tensor file."""
        return self._tensors.tensors

    def write(self, path: str | Path) -> None:
        """Write the folder. It is complete and on disk when this returns, or not there at all."""
        path = absolute_path(path)
        _refuse_to_replace(path)
        with new_folder(path) as folder:
            text = write(self._graph)
            graph = text.encode()
            write_file(folder / GRAPH_FILE, graph, private=mask_secrets(text) != text)
            tensors = self._tensors.write(folder / TENSOR_FILE)
            hashes = {GRAPH_FILE: hashlib.sha256(graph).hexdigest(), TENSOR_FILE: tensors}
            write_file(folder / STATE_FILE, state_text(self._objects, hashes, self._origin))


def save(value: Any, path: str | Path) -> None:
    """Save an object graph: to one file if `path` ends in `.yaml`, otherwise to a folder, which may hold tensors."""
    path = absolute_path(path)
    if path.suffix in (".yaml", ".yml"):
        replace_file(path, dumps(value).encode())
    else:
        Snapshot(value).write(path)


def _refuse_to_replace(path: Path) -> None:
    """Refuse to replace anything but a saved object: a mistyped path must not delete files of a user."""
    is_ours = path.is_dir() and ((path / STATE_FILE).exists() or not any(path.iterdir()))
    if path.exists() and not is_ours:
        raise UsageError(f"{path} exists and is not a saved object; choose another place, or remove it first.")


def _encode_objects(root: Any, writer: Writer) -> Node:
    """The state of each object of a graph by its path."""
    objects = list(walk(root))
    writer.objects = {id(value): join_path(parts) for parts, value in objects}
    entries: list[tuple[Node, Node]] = []
    for parts, value in objects:
        registration = REGISTRY.registration_of(type(value))
        plan = plan_of(type(value))
        assert registration is not None
        writer.covered |= parts_covered(value, plan)
        writer.parts = list(parts)
        items = [(text_node(CLASS), text_node(registration.tag)), *encode_states(value, plan, writer)]
        entries.append((text_node(join_path(parts)), mapping_node(items)))
    return mapping_node(entries)

"""`Snapshot` and `save`: an object graph as a folder of three files (see `state_file`), or as one YAML file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaml.nodes import Node

from sonosco_like.errors import UsageError
from sonosco_like.redaction import mask_secrets
from sonosco_like.serialization.converter import Writer
from sonosco_like.serialization.document import dumps
from sonosco_like.serialization.fields import walk
from sonosco_like.serialization.files import absolute_path, new_folder, replace_file, write_file
from sonosco_like.serialization.nodes import join_path, mapping_node, text_node
from sonosco_like.serialization.objects import CLASS, encode_states, parts_covered
from sonosco_like.serialization.registry import REGISTRY
from sonosco_like.serialization.state_file import GRAPH_FILE, STATE_FILE, TENSOR_FILE, Origin, state_text
from sonosco_like.serialization.types import converter_for, plan_of
from sonosco_like.serialization.yaml_text import write

if TYPE_CHECKING:
    from torch import Tensor

    Tensors = dict[str, Tensor]


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
        """Write the folder: complete and on disk when this returns, or not there at all."""
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
    """Save an object graph: to a single file if `path` ends in `.yaml`, else to a folder that may hold tensors."""
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

"""The differences between two object graphs, by path."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from yaml.nodes import Node, ScalarNode

from sonosco_like.serialization.converter import Writer
from sonosco_like.serialization.document import Document
from sonosco_like.serialization.nodes import Parts, join_path, node_text, walk_nodes
from sonosco_like.serialization.saved_folder import Saved, open_saved
from sonosco_like.serialization.tensors import TensorWriter
from sonosco_like.serialization.types import converter_for

_ABSENT = "(absent)"
_Tensors = Callable[[str], torch.Tensor | None]


@dataclass(frozen=True)
class Difference:
    """One place where two graphs differ."""

    path: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.path or '(top)'}: {self.a} -> {self.b}"


def diff(a: Any, b: Any) -> list[Difference]:
    """The differences between two objects, each of them also as a document or a path; an empty list if they are alike.

    Objects and checkpoints are compared with their state and tensors, config files by their values.
    """
    left, right = _leaves(a), _leaves(b)
    paths = dict.fromkeys([*left, *right])
    texts = ((path, left.get(path, _ABSENT), right.get(path, _ABSENT)) for path in paths)
    return [Difference(*entry) for entry in texts if entry[1] != entry[2]]


def _leaves(value: Any) -> dict[str, str]:
    if isinstance(value, Document):
        return _flatten([((), value.root)], None)
    if isinstance(value, (str, Path)):
        return _leaves_at(value)
    tensors = TensorWriter()
    writer = Writer(type(value).__qualname__, tensors)
    node = converter_for(Any).encode(value, writer)
    writer.raise_problems()
    return _flatten([((), node)], tensors.tensors.get)


def _leaves_at(path: str | Path) -> dict[str, str]:
    opened = open_saved(path)
    if not isinstance(opened, Saved):
        return _flatten([((), opened.root)], None)
    tensors = opened.tensor_file
    tensor = lambda name: tensors.read(name) if tensors is not None and name in tensors else None  # noqa: E731
    return _flatten([((), opened.graph.root), (("state",), opened.state_file.node)], tensor)


def _flatten(roots: list[tuple[Parts, Node]], tensor: _Tensors | None) -> dict[str, str]:
    """The text of each leaf by path. A node that an alias repeats is named by its first path."""
    found: dict[str, str] = {}
    first: dict[int, Parts] = {}
    for path, root in roots:
        for parts, node in walk_nodes(root, path, first):
            if isinstance(node, ScalarNode) or not node.value:
                found[join_path(parts)] = _text(node, tensor)
            elif first[id(node)] != parts:
                found[join_path(parts)] = f"the same as {join_path(first[id(node)]) or '(top)'}"
    return found


def _text(node: Node, tensor: _Tensors | None) -> str:
    stored = isinstance(node, ScalarNode) and node.tag in ("!tensor", "!array") and tensor is not None
    value = tensor(node.value) if stored and tensor is not None else None
    return node_text(node) if value is None else _fingerprint(value)


def _fingerprint(tensor: torch.Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)
    digest = hashlib.sha256(raw.numpy().tobytes()).hexdigest()[:12]
    return f"{str(tensor.dtype).removeprefix('torch.')} tensor of {list(tensor.shape)} with hash {digest}"

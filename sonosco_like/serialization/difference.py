"""What differs between two object graphs, by path."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from yaml.nodes import MappingNode, Node, ScalarNode

from sonosco_like.serialization import files
from sonosco_like.serialization.context import Writer, describe, join_path
from sonosco_like.serialization.document import MAX_BYTES, parse
from sonosco_like.serialization.folder import of_one_piece, open_tensors, read_graph, read_state
from sonosco_like.serialization.tensors import TensorWriter
from sonosco_like.serialization.types import converter_for

_ABSENT = "(absent)"
_Leaves = dict[str, str]


@dataclass(frozen=True)
class Difference:
    """One place where two graphs are not alike."""

    path: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.path or '(top)'}: {self.a} -> {self.b}"


def diff(a: Any, b: Any) -> list[Difference]:
    """The differences between two objects, or between saved ones given as paths; an empty list if they are alike.

    Objects and checkpoints are compared with their state and tensors, config files by what they say.
    """
    left, right = _leaves(a), _leaves(b)
    paths = dict.fromkeys([*left, *right])
    texts = ((path, left.get(path, _ABSENT), right.get(path, _ABSENT)) for path in paths)
    return [Difference(*entry) for entry in texts if entry[1] != entry[2]]


def _leaves(value: Any) -> _Leaves:
    if isinstance(value, (str, Path)):
        return of_one_piece(files.absolute(value), _saved_leaves)
    tensors = TensorWriter()
    writer = Writer(type(value).__qualname__, tensors)
    node = converter_for(Any).encode(value, writer)
    writer.raise_problems()
    return _Flattening(tensors.tensors.get).leaves(node)


def _saved_leaves(path: Path) -> _Leaves:
    if not path.is_dir():
        return _Flattening(None).leaves(parse(files.read_file(path, MAX_BYTES), str(path)))
    state = read_state(path)
    tensors = open_tensors(path, state)
    flattening = _Flattening(lambda name: tensors.read(name) if name in tensors else None)
    return {**flattening.leaves(read_graph(path, state)), **flattening.leaves(state["objects"], ("state",))}


class _Flattening:
    """Turns nodes into leaves by path. A node met again, through an alias, is named by its first path, not expanded."""

    def __init__(self, tensor: Callable[[str], torch.Tensor | None] | None) -> None:
        self._tensor = tensor
        self._seen: dict[int, str] = {}

    def leaves(self, root: Node, path: tuple[Any, ...] = ()) -> _Leaves:
        found: _Leaves = {}
        stack: list[tuple[tuple[Any, ...], Node]] = [(path, root)]
        while stack:
            parts, node = stack.pop()
            name = join_path(parts)
            if isinstance(node, ScalarNode) or not node.value:
                found[name] = self._text(node)
            elif id(node) in self._seen:
                found[name] = f"the same as {self._seen[id(node)] or '(top)'}"
            else:
                self._seen[id(node)] = name
                stack.extend(reversed([((*parts, part), child) for part, child in _children(node)]))
        return found

    def _text(self, node: Node) -> str:
        stored = isinstance(node, ScalarNode) and node.tag in ("!tensor", "!array") and self._tensor
        tensor = self._tensor(node.value) if stored and self._tensor else None
        return describe(node) if tensor is None else _fingerprint(tensor)


def _children(node: Node) -> Iterator[tuple[Any, Node]]:
    if isinstance(node, MappingNode):
        yield from ((key.value if isinstance(key, ScalarNode) else describe(key), value) for key, value in node.value)
    else:
        yield from enumerate(node.value)


def _fingerprint(tensor: torch.Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)
    digest = hashlib.sha256(raw.numpy().tobytes()).hexdigest()[:12]
    return f"{str(tensor.dtype).removeprefix('torch.')} tensor of {list(tensor.shape)} with hash {digest}"

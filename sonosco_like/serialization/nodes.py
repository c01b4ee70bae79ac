"""YAML nodes: their forms, the walk over them with its paths, and their conversion to plain data and back."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, TypeGuard

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sonosco_like.serialization.yaml_text import (
    BOOL,
    FLOAT,
    INT,
    MAP,
    NULL,
    SEQ,
    STR,
    Kind,
    kind_of,
    read_float,
    read_int,
    write_float,
)

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STEP = re.compile(r"(?:^|\.)([^.\[\]=]+)|\[(\d{1,9})\]")
_NOT_IN_ANCHORS = re.compile(r"[^A-Za-z0-9_-]")
_SHOWN = 60
Parts = tuple[Any, ...]
Plain = Any  # None, bool, int, float, str, and lists and dictionaries of these

_READ: dict[Kind, Callable[[str], Any]] = {
    Kind.NULL: lambda text: None,
    Kind.BOOL: lambda text: text.lower() == "true",
    Kind.INT: read_int,
    Kind.FLOAT: read_float,
}


def is_list(node: Node, tag: str | None = None) -> TypeGuard[SequenceNode]:
    """Whether a node is a list without a tag, or with the given one."""
    return isinstance(node, SequenceNode) and node.tag in (SEQ, tag)


def is_mapping(node: Node, tag: str | None = None) -> TypeGuard[MappingNode]:
    """Whether a node is a mapping without a tag, or with the given one."""
    return isinstance(node, MappingNode) and node.tag in (MAP, tag)


def is_removal(node: Node) -> bool:
    """Whether a node is a null that takes away what the base of a file has."""
    return getattr(node, "removes", False)


def list_node(items: list[Node], tag: str = SEQ) -> SequenceNode:
    """A list, on one line if it is short and flat."""
    flat = all(isinstance(item, ScalarNode) and len(item.value) < 40 for item in items) and len(items) <= 16
    return SequenceNode(tag, items, flow_style=flat)


def mapping_node(items: list[tuple[Node, Node]], tag: str = MAP) -> MappingNode:
    """A mapping, one entry to a line."""
    return MappingNode(tag, items, flow_style=not items)


def text_node(text: str) -> ScalarNode:
    """A text."""
    return ScalarNode(STR, text)


def tagged(node: Node, tag: str) -> Node:
    """A node with a tag. The node itself is not touched: it may stand in other places, which need no tag."""
    if isinstance(node, ScalarNode):
        return ScalarNode(tag, node.value, style=node.style)
    made: Any = type(node)
    return made(tag, node.value, flow_style=getattr(node, "flow_style", None))  # type: ignore[no-any-return]


def node_text(node: Node) -> str:
    """The content of a node, for messages."""
    if isinstance(node, ScalarNode):
        text = node.value if len(node.value) <= _SHOWN else node.value[:_SHOWN] + "..."
        kind = kind_of(node)
        if kind is Kind.NULL:
            return "nothing (null)"
        if kind in (Kind.INT, Kind.FLOAT):
            return f"the number {text}"
        if kind is Kind.BOOL:
            return str(text)
        return repr(text) if kind is Kind.TEXT else f"{text!r} tagged {brief(node.tag)}"
    return "a mapping" if isinstance(node, MappingNode) else "a list"


def brief(text: str) -> str:
    """A text in quotes; of a long text, the middle is left out."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


def join_path(parts: list[Any] | tuple[Any, ...]) -> str:
    """`trainer.callbacks[0].monitor`, or `models['two words']` for a key that is not a name."""
    text = ""
    for part in parts:
        if isinstance(part, str) and len(part) <= _SHOWN and _IDENTIFIER.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{brief(part)}]" if isinstance(part, str) else f"[{part!r}]"
    return text


def split_path(path: str | Sequence[Any]) -> list[Any]:
    """The parts of a path such as `trainer.callbacks[0].monitor`; raises ValueError for a text that is no path."""
    if not isinstance(path, str):
        return list(path)
    found = list(_STEP.finditer(path))
    if "".join(match.group(0) for match in found) != path:
        raise ValueError(f"{brief(path)} is not a path such as trainer.callbacks[0].patience")
    return [match.group(1) if match.group(1) is not None else int(match.group(2)) for match in found]


def walk_nodes(root: Node, parts: Parts = (), first: dict[int, Parts] | None = None) -> Iterator[tuple[Parts, Node]]:
    """Every node with its path, in the order of the text.

    A list or mapping that is met again through an alias is given again, but not entered again. `first` is filled with
    the path at which each node was met first, by the id of the node.
    """
    first = {} if first is None else first
    stack: list[tuple[Parts, Node]] = [(parts, root)]
    while stack:
        path, node = stack.pop()
        if id(node) not in first:
            first[id(node)] = path
            stack.extend(reversed([((*path, part), child) for part, child in child_nodes(node)]))
        yield path, node


def anchor_names(root: Node) -> dict[int, str]:
    """A name for each node that occurs more than once, by its id: the field where it is first, such as `features`."""
    first: dict[int, Parts] = {}
    shared = {id(node) for parts, node in walk_nodes(root, first=first) if first[id(node)] is not parts}
    names: dict[str, int] = {}
    for identity, parts in first.items():
        if identity in shared:
            field = next((part for part in reversed(parts) if isinstance(part, str)), "")
            name = _NOT_IN_ANCHORS.sub("_", field)[:_SHOWN] or "value"
            numbered = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
            names[next(each for each in numbered if each not in names)] = identity
    return {identity: name for name, identity in names.items()}


def child_nodes(node: Node | None) -> Iterator[tuple[Any, Node]]:
    """The nodes within a mapping or a list, each with its key or index."""
    if isinstance(node, MappingNode):
        yield from ((key.value if isinstance(key, ScalarNode) else node_text(key), value) for key, value in node.value)
    elif isinstance(node, SequenceNode):
        yield from enumerate(node.value)


def node_at(root: Node | None, parts: Iterable[Any]) -> Node | None:
    """The node at a path; None if there is none."""
    for part in parts:
        root = next((child for name, child in child_nodes(root) if name == part), None)
    return root


def plain_scalar(node: ScalarNode) -> Any:
    """The number, truth value, text or None that a scalar stands for; the text of one with a tag of this format."""
    return _READ.get(kind_of(node), str)(node.value)


def plain_value(node: Node, memo: dict[int, Any]) -> Plain:
    """A node as plain data: the same dictionary or list for each alias of a node.

    Raises ValueError for a node that holds itself, and for a number of more digits than Python converts.
    """
    if isinstance(node, ScalarNode):
        return plain_scalar(node)
    if id(node) not in memo:
        memo[id(node)] = _IN_PROGRESS
        values = {part: plain_value(child, memo) for part, child in child_nodes(node)}
        memo[id(node)] = values if isinstance(node, MappingNode) else list(values.values())
    if memo[id(node)] is _IN_PROGRESS:
        raise ValueError("a value refers to itself")
    return memo[id(node)]


def plain_node(value: Plain, near: Node) -> Node:
    """Plain data as a node, with the line of a node `near` it."""
    marks = (near.start_mark, near.end_mark)
    if isinstance(value, Node):  # of an upgrade: a value it need not understand
        return value
    if isinstance(value, dict):
        pairs = [(ScalarNode(STR, str(k), *marks), plain_node(v, near)) for k, v in value.items()]
        return MappingNode(MAP, pairs, *marks)
    if isinstance(value, (list, tuple)):
        return SequenceNode(SEQ, [plain_node(item, near) for item in value], *marks)
    if value is None or isinstance(value, bool):
        return ScalarNode(NULL if value is None else BOOL, "null" if value is None else str(value).lower(), *marks)
    if isinstance(value, int):
        return ScalarNode(INT, str(value), *marks)
    if isinstance(value, float):
        return ScalarNode(FLOAT, write_float(value), *marks)
    if isinstance(value, (str, PurePath)):
        return ScalarNode(STR, value if isinstance(value, str) else value.as_posix(), *marks)
    raise TypeError(f"expected plain data, got {type(value).__qualname__}")


_IN_PROGRESS = object()

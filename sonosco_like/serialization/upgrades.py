"""Bringing what an older version of a class wrote to the fields of today, one version at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sonosco_like.serialization.context import Reader
from sonosco_like.serialization.registry import Entry
from sonosco_like.serialization.scalars import (
    BOOL,
    FLOAT,
    INT,
    MAP,
    NULL,
    SEQ,
    STR,
    kind_of,
    read_float,
    read_int,
    write_float,
)  # fmt: skip

_RESERVED = ("class", "state")
_MAX_VALUES = 100_000


class _Kept:
    """A value an upgrade need not understand: an object, a tensor reference. It may be moved, renamed or dropped."""

    def __init__(self, node: Node) -> None:
        self.node = node


def upgraded(
    entry: Entry, version: int, items: dict[str, Node], node: Node, reader: Reader, hook: str
) -> dict[str, Node]:
    """The entries after every upgrade from `version` to the current one; unchanged when there is nothing to do."""
    step = getattr(entry.target, hook, None)
    if version == entry.version or step is None:
        return items
    kept = {name: items[name] for name in _RESERVED if name in items}
    try:
        budget = itertools.count()
        plain = {name: _plain(value, budget) for name, value in items.items() if name not in kept}
        originals = {id(value): items[name] for name, value in plain.items()}
        current = dict(plain)
        for number in range(version, entry.version):
            current = dict(step(number, current))
        made = {name: originals.get(id(value)) or _node(value, node) for name, value in current.items()}
        reader.kept.append(made)
        return {**kept, **made}
    except Exception as error:  # an upgrade is code for files it has not seen; its failure is a problem of this file
        reader.problem(node, f"{entry.name} version {version} could not be upgraded: {type(error).__name__}: {error}")
        return items


def _plain(node: Node, budget: Iterator[int]) -> Any:
    """A node as plain data for an upgrade hook. Scalars, lists and mappings of them; anything else is kept whole."""
    if next(budget) > _MAX_VALUES:
        raise ValueError(f"it holds more than {_MAX_VALUES:,} values, aliases counted each time")
    if isinstance(node, ScalarNode):
        kind = kind_of(node)
        if kind == STR:
            return str(node.value)
        readers = {NULL: lambda text: None, BOOL: lambda text: text.lower() == "true", INT: read_int, FLOAT: read_float}
        return readers[kind](node.value) if kind in readers else _Kept(node)
    if isinstance(node, SequenceNode) and node.tag == SEQ:
        return [_plain(item, budget) for item in node.value]
    keys = [key.value for key, _ in node.value if isinstance(key, ScalarNode) and kind_of(key) == STR]
    if node.tag == MAP and len(keys) == len(node.value) and not {"class", "function"} & set(keys):
        return {key.value: _plain(value, budget) for key, value in node.value}
    return _Kept(node)


def _node(value: Any, near: Node) -> Node:
    """Plain data as a node, said to be on the line of the object it belongs to."""
    marks = (near.start_mark, near.end_mark)
    if isinstance(value, _Kept):
        return value.node
    if isinstance(value, dict):
        return MappingNode(MAP, [(ScalarNode(STR, str(k), *marks), _node(v, near)) for k, v in value.items()], *marks)
    if isinstance(value, (list, tuple)):
        return SequenceNode(SEQ, [_node(item, near) for item in value], *marks)
    if value is None or isinstance(value, bool):
        return ScalarNode(NULL if value is None else BOOL, "null" if value is None else str(value).lower(), *marks)
    if isinstance(value, int):
        return ScalarNode(INT, str(value), *marks)
    if isinstance(value, float):
        return ScalarNode(FLOAT, write_float(value), *marks)
    if isinstance(value, str):
        return ScalarNode(STR, value, *marks)
    raise TypeError(f"an upgrade may return plain data, not {type(value).__qualname__}")

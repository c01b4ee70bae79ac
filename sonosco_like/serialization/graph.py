"""The objects of a graph and the paths they have in it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from sonosco_like.serialization.plans import field_value
from sonosco_like.serialization.registry import REGISTRY
from sonosco_like.serialization.types import plan_of

Parts = tuple[Any, ...]


def walk(root: Any) -> Iterator[tuple[Parts, Any]]:
    """Every serializable object within constructor fields, once, under its first path; the whole before its parts."""
    seen: set[int] = set()
    stack: list[tuple[Parts, Any]] = [((), root)]
    while stack:
        path, value = stack.pop()
        children = list(_children(value))
        if not children and REGISTRY.entry_of(type(value)) is None:
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        if REGISTRY.entry_of(type(value)) is not None:
            yield path, value
        stack.extend(((*path, part), child) for part, child in reversed(children))


def _children(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, (list, tuple)):
        yield from enumerate(value)
    elif isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, functools.partial):
        yield from value.keywords.items()
    elif REGISTRY.entry_of(type(value)) is not None:
        for name in plan_of(type(value)).fields:
            yield name, field_value(value, name)

"""`dumps` and `loads`: an object graph as one YAML text."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar, overload

from yaml.nodes import MappingNode, Node

from sonosco_like.errors import ConfigError, Problem
from sonosco_like.serialization.context import INVALID, Reader, TooManyProblems, Writer
from sonosco_like.serialization.converter import tagged
from sonosco_like.serialization.document import parse, write
from sonosco_like.serialization.overrides import apply_overrides
from sonosco_like.serialization.scalars import MAP
from sonosco_like.serialization.types import converter_for

T = TypeVar("T")


def dumps(value: Any, *, state: bool = True) -> str:
    """The YAML of an object graph: every constructor field, and with `state` what a run changed.

    Raises ConfigError naming everything that cannot be written. Tensors never become text: a graph with weights is
    saved to a folder, or written with `state=False`.
    """
    writer = Writer(type(value).__qualname__, with_state=state)
    node = converter_for(Any).encode(value, writer)
    writer.raise_problems()
    return write(tagged(node, "!dict") if isinstance(value, dict) else node)


@overload
def loads(text: str | bytes, expected: type[T], *, source: str = ..., overrides: Iterable[str] = ...) -> T: ...
@overload
def loads(text: str | bytes, expected: Any = ..., *, source: str = ..., overrides: Iterable[str] = ...) -> Any: ...
def loads(text: str | bytes, expected: Any = None, *, source: str = "<text>", overrides: Iterable[str] = ()) -> Any:
    """The object graph of a YAML text. `expected` is the type it must have; `overrides` are `a.b[0].c=value`.

    Raises ConfigError with every problem at once, each with line and path.
    """
    node = apply_overrides(parse(text, source), overrides)
    return decode(node, expected, Reader(source))


def decode(node: Node, expected: Any, reader: Reader) -> Any:
    """A node as an object of the expected type, or all that is wrong with it."""
    hint = _top_level(node, expected)
    value: Any = INVALID
    with suppress(TooManyProblems):
        value = converter_for(hint).decode(node, reader)
    reader.raise_problems()
    if value is INVALID:
        raise ConfigError([Problem("does not describe an object that can be built", source=reader.source)])
    return value


def _top_level(node: Node, expected: Any) -> Any:
    """At the top, a mapping is an object: a forgotten `class` is an error there, not a dictionary."""
    if expected is not None:
        return expected
    untagged = isinstance(node, MappingNode) and node.tag == MAP
    return object if untagged and all(key.value != "function" for key, _ in node.value) else Any

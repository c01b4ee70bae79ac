"""Text to YAML nodes and back: safe, bounded, with the line of everything kept.

Nodes are all we take from PyYAML: no constructor ever runs, so no tag can build anything. Aliases are shared nodes and
are never expanded, so an alias bomb is as small as its text.
"""

from __future__ import annotations

from typing import Any, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sonosco_like.errors import ConfigError, Problem
from sonosco_like.serialization.scalars import MAP, PLAIN, SEQ, STR, written_kind

MAX_BYTES = 64 * 2**20
MAX_NODES = 1_000_000
MAX_DEPTH = 100
_MAX_LEVELS = MAX_DEPTH + 10  # the files of a checkpoint wrap a graph in a few levels of their own

_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _ExcessError(yaml.YAMLError):
    """Deeper or larger than a text may be."""


class _Loader(_BaseLoader):  # type: ignore[misc]
    """Composes nodes without guessing what plain scalars mean; the field's type decides that.

    The composer calls `descend_resolver` before each node and `ascend_resolver` after it. Counting there stops a text
    that is too deep before the C stack ends, and one that is too large before the memory does.
    """

    depth = 0
    nodes = 0

    def resolve(self, kind: type, value: Any, implicit: Any) -> str:
        if kind is ScalarNode:
            return PLAIN if implicit[0] else STR
        return SEQ if kind is SequenceNode else MAP

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        self.depth += 1
        self.nodes += 1
        if self.depth > _MAX_LEVELS:
            raise _ExcessError(f"is nested deeper than {MAX_DEPTH} levels")
        if self.nodes > MAX_NODES:
            raise _ExcessError(f"holds more than {MAX_NODES:,} values")

    def ascend_resolver(self) -> None:
        self.depth -= 1


class _Dumper(_BaseDumper):  # type: ignore[misc]
    """Writes a scalar without quotes only where every reader takes it for what it is."""

    def resolve(self, kind: type, value: Any, implicit: Any) -> str:
        if kind is ScalarNode:
            return written_kind(value) if implicit[0] else STR
        return SEQ if kind is SequenceNode else MAP


def parse(text: str | bytes, source: str) -> Node:
    """The root node of a text. Raises ConfigError for what is not a single, bounded YAML document."""
    text = _decode(text, source)
    if len(text) > MAX_BYTES:
        _refuse(f"has {len(text):,} characters, more than the {MAX_BYTES:,} allowed.", source)
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        _refuse(f"is not valid YAML: {said}.", source, mark.line + 1 if mark else None)
    except _ExcessError as error:
        _refuse(f"{error}.", source)
    except yaml.YAMLError as error:
        _refuse(f"is not valid YAML: {error}.", source)
    except RecursionError:
        _refuse(f"is nested deeper than {MAX_DEPTH} levels.", source)
    except (ValueError, UnicodeError, OverflowError) as error:
        _refuse(f"is not valid YAML: {error}.", source)
    if node is None:
        _refuse("is empty.", source)
    return node  # type: ignore[no-any-return]


def write(node: Node) -> str:
    """The text of a node tree; a node that occurs twice becomes an anchor."""
    return str(yaml.serialize(node, Dumper=_Dumper, allow_unicode=True, width=120))


def line_of(node: Node) -> int | None:
    """The line a node was read from, counted from 1; None for a node that was made here."""
    return node.start_mark.line + 1 if node.start_mark is not None else None


def _decode(text: str | bytes, source: str) -> str:
    try:
        if isinstance(text, bytes):
            return text.decode("utf-8-sig")
        text.encode("utf-8")  # lone surrogates
        return text
    except UnicodeError as error:
        _refuse(f"is not UTF-8 text: {error}.", source)


def _refuse(message: str, source: str, line: int | None = None) -> NoReturn:
    raise ConfigError([Problem(message, source=source, line=line)])


__all__ = ["MappingNode", "Node", "ScalarNode", "SequenceNode", "line_of", "parse", "write"]

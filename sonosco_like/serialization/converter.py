"""Both directions of one type: from a YAML node to a Python value, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeGuard

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sonosco_like.serialization.context import INVALID, Reader, Writer, brief, describe
from sonosco_like.serialization.document import MAX_DEPTH
from sonosco_like.serialization.scalars import MAP, SEQ, STR, kind_of

Schema = dict[str, Any]
_IN_PROGRESS = object()

EXACT, POSSIBLE, NO = 2, 1, 0
REFERENCE = "!object"  # in a state file: an object of the graph, by its path


class Converter(ABC):
    """Knows one type. `expected` names it in messages; `tag` marks a value where its place does not say its type."""

    expected: str
    tag: str | None = None

    @abstractmethod
    def decode(self, node: Node, reader: Reader) -> Any:
        """The value, or INVALID after noting what is wrong."""

    @abstractmethod
    def encode(self, value: Any, writer: Writer) -> Node:
        """The node, after noting what cannot be written."""

    @abstractmethod
    def reads(self, node: Node) -> int:
        """EXACT, POSSIBLE or NO: how well a node's form suits this type, without looking inside."""

    @abstractmethod
    def holds(self, value: Any) -> int:
        """EXACT, POSSIBLE or NO: whether a Python value is of this type, without looking inside."""

    def explicit(self, node: Node) -> Node | None:
        """The node in a form that says its type itself, for places that take several; None if there is no such form."""
        return tagged(node, self.tag) if self.tag else None

    @abstractmethod
    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        """JSON Schema of what may stand here; `refer` gives the reference to a class."""


def tagged(node: Node, tag: str) -> Node:
    """A node with a tag. The node itself is not touched: it may stand in other places, which need no tag."""
    if isinstance(node, ScalarNode):
        return ScalarNode(tag, node.value, style=node.style)
    made: Any = type(node)
    return made(tag, node.value, flow_style=getattr(node, "flow_style", None))  # type: ignore[no-any-return]


class Compound(Converter):
    """A type whose values hold others: read once for all aliases, never around in a circle, never too deep."""

    def decode(self, node: Node, reader: Reader) -> Any:
        key = (id(node), id(self))
        found = reader.memo.get(key, _IN_PROGRESS)
        if key in reader.memo:
            if found is _IN_PROGRESS:
                return reader.problem(node, "refers to itself")
            return reader.expected(node, self.expected) if found is INVALID else found
        if reader.too_deep(node):
            return INVALID
        reader.memo[key] = _IN_PROGRESS
        value = reader.memo[key] = self.read(node, reader)
        return value

    def encode(self, value: Any, writer: Writer) -> Node:
        key = (id(value), id(self))
        if key in writer.memo:
            found = writer.memo[key]
            return writer.problem("refers to itself, which YAML cannot restore") if found is None else found
        if len(writer.parts) > MAX_DEPTH:
            return writer.problem(f"is nested deeper than {MAX_DEPTH} levels, which reading refuses")
        writer.kept.append(value)
        writer.memo[key] = None  # type: ignore[assignment]
        before = writer.problem_count
        node = self.write(value, writer)
        if writer.problem_count == before:
            writer.memo[key] = node
        else:  # what could not be written must say so again in the next place it stands
            del writer.memo[key]
        return node

    @abstractmethod
    def read(self, node: Node, reader: Reader) -> Any:
        """As `decode`, for a node seen for the first time."""

    @abstractmethod
    def write(self, value: Any, writer: Writer) -> Node:
        """As `encode`, for a value seen for the first time."""


def is_list(node: Node, tag: str | None = None) -> TypeGuard[SequenceNode]:
    """Whether a node is a list without a tag, or with the given one."""
    return isinstance(node, SequenceNode) and node.tag in (SEQ, tag)


def is_mapping(node: Node, tag: str | None = None) -> TypeGuard[MappingNode]:
    """Whether a node is a mapping without a tag, or with the given one."""
    return isinstance(node, MappingNode) and node.tag in (MAP, tag)


def mapping_items(node: Node, reader: Reader) -> dict[str, Node]:
    """The entries of a mapping by name; duplicate and non-text keys are problems."""
    items: dict[str, Node] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode) or kind_of(key) != STR:
            reader.problem(key, f"expected the name of a field as key, got {describe(key)}")
        elif key.value in items:
            reader.problem(key, f"has the key {brief(key.value)} twice")
        else:
            items[key.value] = value
    return items


def list_node(items: list[Node], tag: str = SEQ) -> SequenceNode:
    """A list, on one line if it is short and flat."""
    flat = all(isinstance(item, ScalarNode) and len(item.value) < 40 for item in items) and len(items) <= 16
    return SequenceNode(tag, items, flow_style=flat)


def mapping_node(items: list[tuple[Node, Node]], tag: str = MAP) -> MappingNode:
    """A mapping, one entry to a line."""
    return MappingNode(tag, items, flow_style=not items)


def not_serializable(value: Any, writer: Writer) -> Node:
    """Note that a Python value cannot be restored, whatever its field declares."""
    return writer.problem(
        f"{type(value).__qualname__} is not serializable. Decorate the class with @serializable, or pass something "
        f"built from serializable parts"
    )


def not_of_type(value: Any, converter: Converter, writer: Writer) -> Node:
    """Note that a Python value is not of the type its field declares."""
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
    return writer.problem(f"expected {converter.expected}, got {shown} of type {type(value).__qualname__}")


__all__ = [
    "EXACT", "INVALID", "NO", "POSSIBLE", "REFERENCE", "Compound", "Converter", "Reader", "Schema", "Writer",
    "describe", "is_list", "is_mapping", "list_node", "mapping_items", "mapping_node", "not_of_type",
    "not_serializable", "tagged",
]  # fmt: skip

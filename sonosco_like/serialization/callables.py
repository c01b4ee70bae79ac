"""Functions as values: registered ones by name, some with arguments given, and objects that can be called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode

from sonosco_like.errors import did_you_mean
from sonosco_like.serialization.context import Invalid
from sonosco_like.serialization.converter import (
    EXACT,
    INVALID,
    NO,
    POSSIBLE,
    Reader,
    Schema,
    Writer,
    is_mapping,
    mapping_items,
    mapping_node,
)  # fmt: skip
from sonosco_like.serialization.objects import CLASS, ObjectConverter, decode_fields, find_entry, value_of
from sonosco_like.serialization.plans import Plan
from sonosco_like.serialization.registry import REGISTRY
from sonosco_like.serialization.scalars import MAP, STR, kind_of

FUNCTION = "function"


class CallableConverter(ObjectConverter):
    """A registered function by name, one with some keyword arguments given, or an object that can be called."""

    def __init__(self, plan_of: Callable[[Any], Plan]) -> None:
        super().__init__(object, plan_of)
        self.expected = "the name of a function"

    def encode(self, value: Any, writer: Writer) -> Node:
        if inspect.isroutine(value):  # a name, not an object: never an anchor
            return self.write(value, writer)
        return super().encode(value, writer)

    def read(self, node: Node, reader: Reader) -> Any:
        if isinstance(node, ScalarNode):
            found = find_entry(node, "function", reader, function_names())
            return INVALID if isinstance(found, Invalid) else found[0].target
        if is_mapping(node) and value_of(node, FUNCTION) is not None:
            return self._partial(node, reader)
        if not is_mapping(node):
            return reader.expected(node, self.expected)
        made = super().read(node, reader)
        return made if made is INVALID or callable(made) else reader.expected(node, "something that can be called")

    def write(self, value: Any, writer: Writer) -> Node:
        if isinstance(value, functools.partial):
            return self._write_partial(value, writer)
        if inspect.isroutine(value):
            entry = REGISTRY.entry_of(value)
            if entry is not None:
                return ScalarNode(STR, entry.name)
            name = getattr(value, "__qualname__", repr(value))
            return writer.problem(f"the function {name} is not registered. Decorate it with @serializable")
        return super().write(value, writer)

    def explicit(self, node: Node) -> Node | None:
        if not isinstance(node, ScalarNode):
            return node
        return MappingNode(MAP, [(ScalarNode(STR, FUNCTION), node)], flow_style=True)

    def reads(self, node: Node) -> int:
        if isinstance(node, ScalarNode):
            entry = REGISTRY.find(node.value) if kind_of(node) == STR else None
            return POSSIBLE if entry and not entry.is_class else NO
        return POSSIBLE if is_mapping(node) and (value_of(node, FUNCTION) or value_of(node, CLASS)) else NO

    def holds(self, value: Any) -> int:
        return EXACT if inspect.isroutine(value) or isinstance(value, functools.partial) else (
            POSSIBLE if callable(value) and not isinstance(value, type) else NO)  # fmt: skip

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {
            "anyOf": [
                {"enum": function_names()},
                {"type": "object", "required": [FUNCTION], "properties": {FUNCTION: {"enum": function_names()}}},
                {"type": "object", "required": [CLASS]},
            ]
        }

    def _partial(self, node: MappingNode, reader: Reader) -> Any:
        items = mapping_items(node, reader)
        with reader.at(FUNCTION):
            found = find_entry(items[FUNCTION], "function", reader, function_names())
        if isinstance(found, Invalid):
            return INVALID
        known_problems = reader.problem_count
        entry = found[0]
        values = decode_fields(node, items, self.plan_of(entry.target).fields, entry, reader, also=(FUNCTION,))
        if reader.problem_count > known_problems:
            return INVALID
        return functools.partial(entry.target, **values) if values else entry.target

    def _write_partial(self, value: functools.partial[Any], writer: Writer) -> Node:
        entry = REGISTRY.entry_of(value.func)
        if entry is None or entry.is_class or value.args:
            return writer.problem(
                f"functools.partial({getattr(value.func, '__qualname__', value.func)}, ...) cannot be restored; it "
                f"needs a registered function (@serializable) and keyword arguments only"
            )
        fields = self.plan_of(entry.target).fields
        items: list[tuple[Node, Node]] = [(ScalarNode(STR, FUNCTION), ScalarNode(STR, entry.name))]
        for name, argument in value.keywords.items():
            with writer.at(name):
                if name not in fields:
                    writer.problem(f"{entry.name} has no such argument{did_you_mean(name, fields)}")
                    continue
                items.append((ScalarNode(STR, name), fields[name].converter.encode(argument, writer)))
        return mapping_node(items)


def function_names() -> list[str]:
    """Names of every registered function."""
    return [entry.name for entry in REGISTRY.entries() if not entry.is_class]

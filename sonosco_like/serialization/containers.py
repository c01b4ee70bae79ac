"""Lists, tuples, sets and dictionaries, of anything that can be written."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from yaml.nodes import Node, ScalarNode

from sonosco_like.serialization.converter import (
    INVALID,
    Compound,
    Converter,
    Fit,
    Reader,
    Schema,
    Writer,
    not_of_type,
)
from sonosco_like.serialization.nodes import is_list, is_mapping, list_node, mapping_node, node_text


class ListConverter(Compound):
    """`list[T]`, and as `Sequence[T]` or `Iterable[T]` also other ordered values, which come back as lists."""

    def __init__(self, item: Converter, types: tuple[type, ...] = (list,)) -> None:
        self.item = item
        self.types = types
        self.expected = f"a list of {_plural(item)}"

    def read(self, node: Node, reader: Reader) -> Any:
        if not is_list(node):
            return reader.expected(node, self.expected)
        values = _decode_items(node, [self.item] * len(node.value), reader)
        return INVALID if values is None else values

    def write(self, value: Any, writer: Writer) -> Node:
        if not self.fit_of_value(value):
            return not_of_type(value, self, writer)
        return list_node(_encode_items(value, [self.item] * len(value), writer))

    def fit_of_node(self, node: Node) -> Fit:
        return Fit.EXACT if is_list(node) else Fit.NO

    def fit_of_value(self, value: Any) -> Fit:
        return Fit.EXACT if type(value) is list else Fit.POSSIBLE if isinstance(value, self.types) else Fit.NO

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {"type": "array", "items": self.item.schema(refer)}


class TupleConverter(Compound):
    """`tuple[A, B]` of fixed length, or `tuple[T, ...]` of any."""

    tag = "!tuple"

    def __init__(self, items: list[Converter], repeated: bool) -> None:
        self.items = items
        self.repeated = repeated
        inside = ", ".join(item.expected for item in items)
        self.expected = f"a list of {_plural(items[0])}" if repeated else f"a list of {len(items)} values ({inside})"

    def read(self, node: Node, reader: Reader) -> Any:
        if not is_list(node, self.tag):
            return reader.expected(node, self.expected)
        if not self.repeated and len(node.value) != len(self.items):
            return reader.problem(node, f"expected {self.expected}, got {len(node.value)} values")
        values = _decode_items(node, self._items(len(node.value)), reader)
        return INVALID if values is None else tuple(values)

    def write(self, value: Any, writer: Writer) -> Node:
        if not self.fit_of_value(value) or not (self.repeated or len(value) == len(self.items)):
            return not_of_type(value, self, writer)
        return list_node(_encode_items(value, self._items(len(value)), writer))

    def fit_of_node(self, node: Node) -> Fit:
        return (Fit.EXACT if node.tag == self.tag else Fit.POSSIBLE) if is_list(node, self.tag) else Fit.NO

    def fit_of_value(self, value: Any) -> Fit:
        return Fit.EXACT if type(value) is tuple else Fit.POSSIBLE if isinstance(value, (tuple, list)) else Fit.NO

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        if self.repeated:
            return {"type": "array", "items": self.items[0].schema(refer)}
        size = len(self.items)
        items = [item.schema(refer) for item in self.items]
        return {"type": "array", "minItems": size, "maxItems": size, **({"prefixItems": items} if items else {})}

    def _items(self, length: int) -> list[Converter]:
        return self.items * length if self.repeated else self.items


class SetConverter(Compound):
    """`set[T]`, written sorted so that the text does not depend on the hash seed."""

    tag = "!set"

    def __init__(self, item: Converter) -> None:
        self.item = item
        self.expected = f"a list of different {_plural(item)}"

    def read(self, node: Node, reader: Reader) -> Any:
        if not is_list(node, self.tag):
            return reader.expected(node, self.expected)
        values = _decode_items(node, [self.item] * len(node.value), reader)
        if values is None:
            return INVALID
        try:
            found = set(values)
        except TypeError as error:
            return reader.problem(node, f"cannot be a set: {error}")
        return found if len(found) == len(values) else reader.problem(node, "has a value twice")

    def write(self, value: Any, writer: Writer) -> Node:
        if not self.fit_of_value(value):
            return not_of_type(value, self, writer)
        nodes = _encode_items(value, [self.item] * len(value), writer)
        if not all(isinstance(node, ScalarNode) for node in nodes):
            return writer.problem("a set can only hold plain values; objects in it would have no stable place")
        return list_node(sorted(nodes, key=lambda node: (node.tag, len(node.value), node.value)))

    def fit_of_node(self, node: Node) -> Fit:
        return (Fit.EXACT if node.tag == self.tag else Fit.POSSIBLE) if is_list(node, self.tag) else Fit.NO

    def fit_of_value(self, value: Any) -> Fit:
        return Fit.EXACT if type(value) is set else Fit.POSSIBLE if isinstance(value, set) else Fit.NO

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {"type": "array", "items": self.item.schema(refer), "uniqueItems": True}


class DictConverter(Compound):
    """`dict[K, V]` with scalar keys, in the order of insertion."""

    tag = "!dict"

    def __init__(self, key: Converter, value: Converter) -> None:
        self.key = key
        self.value = value
        self.expected = f"a mapping to {_plural(value)}"

    def read(self, node: Node, reader: Reader) -> Any:
        if not is_mapping(node, self.tag):
            return reader.expected(node, self.expected)
        found: dict[Any, Any] = {}
        valid = True
        for key_node, value_node in node.value:
            key = self._read_key(key_node, reader)
            reader.parts.append(key_node.value if key is INVALID else key)
            value = self.value.decode(value_node, reader)
            reader.parts.pop()
            if key is INVALID or value is INVALID:
                valid = False
            elif key in found:
                reader.problem(key_node, f"has the key {node_text(key_node)} twice")
                valid = False
            else:
                found[key] = value
        return found if valid else INVALID

    def write(self, value: Any, writer: Writer) -> Node:
        if not self.fit_of_value(value):
            return not_of_type(value, self, writer)
        items = []
        for key, item in value.items():
            with writer.at(key):
                key_node = self.key.encode(key, writer)
                if not isinstance(key_node, ScalarNode):
                    key_node = writer.problem(f"the key {key!r} is not a plain value")
                items.append((key_node, self.value.encode(item, writer)))
        return mapping_node(items)

    def fit_of_node(self, node: Node) -> Fit:
        if not is_mapping(node, self.tag):
            return Fit.NO
        describes_object = any(key.value in ("class", "function") for key, _ in node.value)
        return Fit.POSSIBLE if describes_object and node.tag != self.tag else Fit.EXACT

    def fit_of_value(self, value: Any) -> Fit:
        return Fit.EXACT if type(value) in (dict, OrderedDict) else Fit.POSSIBLE if isinstance(value, dict) else Fit.NO

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {"type": "object", "additionalProperties": self.value.schema(refer)}

    def _read_key(self, node: Node, reader: Reader) -> Any:
        if not isinstance(node, ScalarNode):
            return reader.problem(node, f"expected a plain value as key, got {node_text(node)}")
        return self.key.decode(node, reader)


def _decode_items(node: Node, converters: list[Converter], reader: Reader) -> list[Any] | None:
    values = []
    valid = True
    for index, (item, converter) in enumerate(zip(node.value, converters, strict=True)):
        reader.parts.append(index)
        value = converter.decode(item, reader)
        reader.parts.pop()
        valid = valid and value is not INVALID
        values.append(value)
    return values if valid else None


def _encode_items(values: Iterable[Any], converters: list[Converter], writer: Writer) -> list[Node]:
    nodes = []
    for index, (value, converter) in enumerate(zip(values, converters, strict=True)):
        writer.parts.append(index)
        nodes.append(converter.encode(value, writer))
        writer.parts.pop()
    return nodes


def _plural(converter: Converter) -> str:
    return {"a whole number": "whole numbers", "a number": "numbers", "text": "texts", "true or false": "booleans"}.get(
        converter.expected, f"values, each {converter.expected}" if len(converter.expected) < 60 else "values"
    )

"""Types made of other types: lists, tuples, sets, dictionaries, unions; and `Any`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any

from yaml.nodes import Node, ScalarNode

from sonosco_like.serialization import scalar_types
from sonosco_like.serialization.converter import (
    INVALID,
    REFERENCE,
    Compound,
    Converter,
    Fit,
    Reader,
    Schema,
    Writer,
    not_of_type,
    not_serializable,
)
from sonosco_like.serialization.nodes import brief, is_list, is_mapping, is_removal, list_node, mapping_node, node_text
from sonosco_like.serialization.objects import ObjectConverter
from sonosco_like.serialization.registry import REGISTRY
from sonosco_like.serialization.yaml_text import Kind, kind_of


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
            if is_removal(value_node):
                continue
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


_TYPES = {Kind.TEXT: str, Kind.INT: int, Kind.FLOAT: float, Kind.BOOL: bool, Kind.NULL: None}


class UnionConverter(Converter):
    """One of several types. The form of a node decides; `@serializable` refuses two types of the same form."""

    def __init__(self, options: list[Converter]) -> None:
        self.options = options
        self.expected = " or ".join(option.expected for option in options)

    def decode(self, node: Node, reader: Reader) -> Any:
        option = self._option_of(node, reader) or self._text_option(node)
        return reader.expected(node, self.expected) if option is None else option.decode(node, reader)

    def encode(self, value: Any, writer: Writer) -> Node:
        option = max(self.options, key=lambda option: option.fit_of_value(value))
        if not option.fit_of_value(value):
            return not_of_type(value, self, writer)
        node = option.encode(value, writer)
        first = self._option_of(node)
        if first in (option, None) or (isinstance(first, ObjectConverter) and isinstance(option, ObjectConverter)):
            return node
        tagged = option.tagged_form(node)
        if tagged is None or self._option_of(tagged) is not option:
            return writer.problem(f"{value!r} could not be told from {first.expected} when read back")
        return tagged

    def fit_of_node(self, node: Node) -> Fit:
        return max(option.fit_of_node(node) for option in self.options)

    def fit_of_value(self, value: Any) -> Fit:
        return max(option.fit_of_value(value) for option in self.options)

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {"anyOf": [option.schema(refer) for option in self.options]}

    def _option_of(self, node: Node, reader: Reader | None = None) -> Converter | None:
        """The type as which a node is read: the one that fits its form best; of equals, the first of the union."""
        if node.tag == REFERENCE and isinstance(node, ScalarNode) and reader is not None:
            found = reader.objects.get(node.value)
            return next((option for option in self.options if option.fit_of_value(found)), self.options[0])
        option = max(self.options, key=lambda option: option.fit_of_node(node))
        return option if option.fit_of_node(node) else None

    def _text_option(self, node: Node) -> Converter | None:
        """The type that takes a value of the command line as text, if its form fits no type."""
        texts = (option for option in self.options if isinstance(option, scalar_types.Text))
        return next(texts, None) if hasattr(node, "raw") else None


class AnyConverter(Converter):
    """Anything that can be written; a value for which YAML has no form has a tag."""

    expected = "a value"

    def __init__(self, compile_hint: Callable[[Any], Converter]) -> None:
        self._compile = compile_hint
        self._by_type: dict[type, Converter | None] = {}

    def decode(self, node: Node, reader: Reader) -> Any:
        converter = self._by_node(node)
        if converter is None:
            return reader.problem(node, f"the tag {brief(node.tag)} is not one of this format")
        return converter.decode(node, reader)

    def encode(self, value: Any, writer: Writer) -> Node:
        converter = self._by_value(value)
        if converter is None:
            return not_serializable(value, writer)
        node = converter.encode(value, writer)
        if node.tag.startswith("!") or self._by_node(node) is converter:
            return node
        if isinstance(node, ScalarNode):
            return converter.tagged_form(node) or node
        key = (id(node), id(self))  # one tagged node for all places that hold this value
        known = writer.memo.get(key) or (node, converter.tagged_form(node) or node)
        writer.memo[key] = known
        return known[1] or node

    def fit_of_node(self, node: Node) -> Fit:
        return Fit.POSSIBLE

    def fit_of_value(self, value: Any) -> Fit:
        return Fit.POSSIBLE

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {}

    def _by_node(self, node: Node) -> Converter | None:
        if isinstance(node, ScalarNode):
            kind = kind_of(node)
            return self._by_tag().get(node.tag) if kind is Kind.OTHER else self._compile(_TYPES[kind])
        if is_list(node):
            return self._compile(list)
        if is_mapping(node):
            names = {key.value for key, _ in node.value if isinstance(key, ScalarNode) and kind_of(key) is Kind.TEXT}
            hint = object if "class" in names else Callable if "function" in names else dict[Any, Any]
            return self._compile(hint)
        return self._by_tag().get(node.tag)

    def _by_value(self, value: Any) -> Converter | None:
        if value is None:
            return scalar_types.NOTHING
        kind = type(value)
        if known := self._by_type.get(kind):
            return known
        if inspect.isroutine(value) or isinstance(value, functools.partial):
            return self._compile(Callable)
        if REGISTRY.registration_of(kind) is not None:
            return self._compile(object)
        if kind not in self._by_type:
            self._by_type[kind] = next((c for c in self._values() if c.fit_of_value(value) == Fit.EXACT), None)
        return self._by_type[kind]

    def _values(self) -> list[Converter]:
        torch = sys.modules.get("torch")
        numpy = sys.modules.get("numpy")
        hints: list[Any] = [bool, int, float, str, list, tuple, dict[Any, Any], set, PurePath]
        hints += [torch.Tensor, torch.device, torch.dtype] if torch else []
        hints += [numpy.ndarray] if numpy else []
        return [self._compile(hint) for hint in hints]

    def _by_tag(self) -> dict[str, Converter]:
        found = {converter.tag: converter for converter in self._values() if converter.tag}
        return {**found, REFERENCE: self._compile(object)}

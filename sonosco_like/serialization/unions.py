"""Places that take values of several types: unions, and `Any`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from yaml.nodes import Node, ScalarNode

from sonosco_like.serialization import scalar_types
from sonosco_like.serialization.converter import (
    REFERENCE,
    Converter,
    Fit,
    Reader,
    Schema,
    Writer,
    not_of_type,
    not_serializable,
)
from sonosco_like.serialization.nodes import brief, is_list, is_mapping
from sonosco_like.serialization.objects import ObjectConverter
from sonosco_like.serialization.registry import REGISTRY
from sonosco_like.serialization.yaml_text import Kind, kind_of

_TYPES = {Kind.TEXT: str, Kind.INT: int, Kind.FLOAT: float, Kind.BOOL: bool, Kind.NULL: None}


class UnionConverter(Converter):
    """One of several types. The form of a node decides which; two types of one form are refused by `@serializable`."""

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
        """The type that a node is read as: the one its form suits best, of equals the first of the union."""
        if node.tag == REFERENCE and isinstance(node, ScalarNode) and reader is not None:
            found = reader.objects.get(node.value)
            return next((option for option in self.options if option.fit_of_value(found)), self.options[0])
        option = max(self.options, key=lambda option: option.fit_of_node(node))
        return option if option.fit_of_node(node) else None

    def _text_option(self, node: Node) -> Converter | None:
        """The type that takes a value of the command line as text, if its form suits no type."""
        texts = (option for option in self.options if isinstance(option, scalar_types.Text))
        return next(texts, None) if hasattr(node, "raw") else None


class AnyConverter(Converter):
    """Anything that can be written; what YAML has no form for carries a tag."""

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
        if inspect.isroutine(value) or isinstance(value, functools.partial):
            return self._compile(Callable)
        kind = type(value)
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

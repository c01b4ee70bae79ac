"""Places that take values of several types: unions, and `Any`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any

from yaml.nodes import Node, ScalarNode

from sonosco_like.serialization import atoms
from sonosco_like.serialization.context import TooManyProblems, brief
from sonosco_like.serialization.converter import (
    EXACT,
    INVALID,
    NO,
    POSSIBLE,
    REFERENCE,
    Converter,
    Reader,
    Schema,
    Writer,
    is_list,
    is_mapping,
    not_of_type,
    not_serializable,
)  # fmt: skip
from sonosco_like.serialization.registry import REGISTRY
from sonosco_like.serialization.scalars import BOOL, FLOAT, INT, NULL, STR, kind_of


class UnionConverter(Converter):
    """One of several types. The form of the node decides, then the order of the union."""

    def __init__(self, options: list[Converter]) -> None:
        self.options = options
        self.expected = " or ".join(option.expected for option in options)

    def decode(self, node: Node, reader: Reader) -> Any:
        options = self._ranked(node) or self._as_given(node)
        if not options:
            return reader.expected(node, self.expected)
        if len(options) == 1:
            return options[0].decode(node, reader)
        before, count = reader.problems, reader.problem_count
        for option in options:
            reader.problems = []
            try:
                value = option.decode(node, reader)
            except TooManyProblems:
                value = INVALID
            finally:
                reader.problems, reader.problem_count = before, count
            if value is not INVALID:
                return value
        return reader.expected(node, self.expected)

    def encode(self, value: Any, writer: Writer) -> Node:
        options = sorted((o for o in self.options if o.holds(value)), key=lambda o: -o.holds(value))
        if not options:
            return not_of_type(value, self, writer)
        if len(options) == 1:
            return self._unambiguous(options[0].encode(value, writer), options[0], value, writer)
        before, count = writer.problems, writer.problem_count
        for option in options:
            writer.problems, writer.problem_count = [], 0
            node = option.encode(value, writer)
            found, writer.problems, writer.problem_count = writer.problem_count, before, count
            if not found:
                return self._unambiguous(node, option, value, writer)
        return options[0].encode(value, writer)  # once more, for its problems

    def reads(self, node: Node) -> int:
        return max(option.reads(node) for option in self.options)

    def holds(self, value: Any) -> int:
        return max(option.holds(value) for option in self.options)

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {"anyOf": [option.schema(refer) for option in self.options]}

    def _ranked(self, node: Node) -> list[Converter]:
        """The options a node may be read as, best first."""
        ranks = [(option.reads(node), option) for option in self.options]
        return [option for rank, option in sorted(ranks, key=lambda pair: -pair[0]) if rank != NO]

    def _as_given(self, node: Node) -> list[Converter]:
        """The option that takes a value of the command line as text, if its form fits no other."""
        texts: list[Converter] = [option for option in self.options if isinstance(option, atoms.Text)]
        return texts[:1] if hasattr(node, "raw") else []

    def _unambiguous(self, node: Node, option: Converter, value: Any, writer: Writer) -> Node:
        """The node, with a tag if it would be read back as another type of this union."""
        first = next(iter(self._ranked(node)), None)
        if first is option or first is None:
            return node
        explicit = option.explicit(node)
        if explicit is not None:
            return explicit
        if isinstance(first, atoms.Atom) or isinstance(option, atoms.Atom):
            return writer.problem(f"{value!r} could not be told from {first.expected} when read back")
        return node


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
            return converter.explicit(node) or node
        key = (id(node), id(self))  # one explicit node for all places that hold this value
        if key not in writer.memo:
            writer.kept.append(node)
            writer.memo[key] = converter.explicit(node) or node
        return writer.memo[key]

    def reads(self, node: Node) -> int:
        return POSSIBLE

    def holds(self, value: Any) -> int:
        return POSSIBLE

    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        return {}

    def _by_node(self, node: Node) -> Converter | None:
        if isinstance(node, ScalarNode):
            kinds = {STR: str, INT: int, FLOAT: float, BOOL: bool, NULL: None}
            kind = kind_of(node)
            return self._compile(kinds[kind]) if kind in kinds else self._by_tag().get(kind)
        if is_list(node):
            return self._compile(list)
        if is_mapping(node):
            names = {key.value for key, _ in node.value if isinstance(key, ScalarNode) and kind_of(key) == STR}
            hint = object if "class" in names else Callable if "function" in names else dict[Any, Any]
            return self._compile(hint)
        return self._by_tag().get(node.tag)

    def _by_value(self, value: Any) -> Converter | None:
        if value is None:
            return atoms.NOTHING
        if isinstance(value, type):
            return self._compile(type)
        if inspect.isroutine(value) or isinstance(value, functools.partial):
            return self._compile(Callable)
        kind = type(value)
        if REGISTRY.entry_of(kind) is not None:
            return self._compile(object)
        if kind not in self._by_type:
            self._by_type[kind] = next((c for c in self._values() if c.holds(value) == EXACT), None)
        return self._by_type[kind]

    def _values(self) -> list[Converter]:
        torch = sys.modules.get("torch")
        numpy = sys.modules.get("numpy")
        simple = [bool, int, float, str, list, tuple, dict[Any, Any], set, frozenset]
        hints: list[Any] = [*simple, PurePath, datetime, timedelta]
        hints += [torch.Tensor, torch.device, torch.dtype] if torch else []
        hints += [numpy.ndarray] if numpy else []
        return [self._compile(hint) for hint in hints]

    def _by_tag(self) -> dict[str, Converter]:
        found = {c.tag: c for c in [*self._values(), self._compile(type)] if c.tag}
        return {**found, REFERENCE: self._compile(object)}

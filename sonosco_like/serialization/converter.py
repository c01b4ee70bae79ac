"""The base of all converters, the state of a reading or a writing, and the converters of the fields of a class.

A converter reads and writes one type; a plan has the converter of each field of a class, or argument of a function."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from yaml.nodes import Node, ScalarNode

from sonosco_like.errors import ConfigError, Problem
from sonosco_like.serialization.definition import SAVED_AS, field_types, initial_value, is_state
from sonosco_like.serialization.nodes import Parts, brief, join_path, node_text, tagged
from sonosco_like.serialization.registry import REGISTRY
from sonosco_like.serialization.yaml_text import MAX_DEPTH, NULL, Kind, kind_of, line_of

if TYPE_CHECKING:
    from sonosco_like.serialization.tensors import TensorReader, TensorWriter

MAX_PROBLEMS = 100


class Invalid:
    """What decoding returns for a value that has a problem; the problem itself is in the reader's list."""


INVALID = Invalid()


class TooManyProblems(Exception):  # noqa: N818  (ends a reading early; never leaves this package)
    """Raised after MAX_PROBLEMS problems: the rest of such a file is not read."""


class _Place:
    """A position in the object graph and the problems found on the way."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.problem_count = 0
        self.parts: list[Any] = []

    @contextmanager
    def at(self, part: Any) -> Iterator[None]:
        """Enter a field, an index or a key. Loops over fields push and pop `parts` themselves, which is faster."""
        self.parts.append(part)
        try:
            yield
        finally:
            self.parts.pop()

    @property
    def path(self) -> str:
        """The path of the present value, such as `trainer.callbacks[0].patience`."""
        return join_path(self.parts)

    @property
    def is_full(self) -> bool:
        """Whether MAX_PROBLEMS problems are known."""
        return len(self.problems) >= MAX_PROBLEMS

    def raise_problems(self) -> None:
        """Raise every problem so far as one error, in the order of the text."""
        if not self.problems:
            return
        found = sorted(dict.fromkeys(self.problems), key=lambda problem: problem.line or 0)
        if self.is_full:
            found.append(Problem("and perhaps more problems", source=self.source))
        raise ConfigError(found)

    def _note(self, problem: Problem) -> None:
        self.problem_count += 1
        if not self.is_full:
            self.problems.append(problem)


class Reader(_Place):
    """The state of one reading: from nodes to objects."""

    def __init__(self, source: str, tensors: TensorReader | None = None) -> None:
        super().__init__(source)
        self.tensors = tensors
        self.objects: dict[str, Any] = {}  # by path: what a state file may point back to
        # one object for all aliases of a node, by the ids of node and converter; each entry keeps its node alive
        self.memo: dict[tuple[int, int], tuple[Node, Any]] = {}

    def problem(self, node: Node, message: str) -> Invalid:
        """Note what is wrong with a node."""
        source = getattr(node, "source", self.source)
        message = getattr(node, "unreadable", message)
        self._note(Problem(message, self.path, source, line_of(node)))
        if self.is_full:
            raise TooManyProblems
        return INVALID

    def expected(self, node: Node, expected: str, hint: str = "") -> Invalid:
        """Note that a node does not have the form that is expected."""
        return self.problem(node, f"expected {expected}, got {node_text(node)}{hint}")

    def too_deep(self, node: Node) -> bool:
        if len(self.parts) <= MAX_DEPTH:
            return False
        self.problem(node, f"is nested deeper than {MAX_DEPTH} levels")
        return True


class Writer(_Place):
    """The state of one writing: from objects to nodes."""

    def __init__(self, source: str, tensors: TensorWriter | None = None, with_state: bool = True) -> None:
        super().__init__(source)
        self.tensors = tensors
        self.with_state = with_state
        self.objects: dict[int, str] = {}  # id to path: objects of the graph that state may point to
        self.covered: set[int] = set()  # ids of modules whose weights are in the state of a module around them
        # one node for all places that hold a value, by the ids of value and converter; each entry keeps its value alive
        self.memo: dict[tuple[int, int], tuple[Any, Node | None]] = {}

    def problem(self, message: str) -> Node:
        """Note what cannot be written, and return a node, so that writing continues and finds the next problem."""
        self._note(Problem(message, self.path, self.source))
        return ScalarNode(NULL, "null")


Schema = dict[str, Any]
_IN_PROGRESS = object()

REFERENCE = "!object"  # in a state file: an object of the graph, by its path


class Fit(IntEnum):
    """How well a node or a value suits a type."""

    NO = 0
    POSSIBLE = 1
    EXACT = 2


class Converter(ABC):
    """Knows one type. `expected` names it in messages; `tag` marks a value where the field has no type."""

    expected: str
    tag: str | None = None

    @abstractmethod
    def decode(self, node: Node, reader: Reader) -> Any:
        """The value, or INVALID after noting what is wrong."""

    @abstractmethod
    def encode(self, value: Any, writer: Writer) -> Node:
        """The node, after noting what cannot be written."""

    @abstractmethod
    def fit_of_node(self, node: Node) -> Fit:
        """How well the form of a node fits this type; the content of the node does not matter."""

    @abstractmethod
    def fit_of_value(self, value: Any) -> Fit:
        """Whether a Python value is of this type; the content of the value does not matter."""

    def tagged_form(self, node: Node) -> Node | None:
        """The node in a form that names its type, for places that take several types; None if there is no such form."""
        return tagged(node, self.tag) if self.tag else None

    @abstractmethod
    def schema(self, refer: Callable[[type], Schema]) -> Schema:
        """The JSON Schema of the values of this type; `refer` gives the reference to a class."""


class Compound(Converter):
    """A type whose values contain other values. Aliases are read once; circles and deep nesting are refused."""

    def decode(self, node: Node, reader: Reader) -> Any:
        key = (id(node), id(self))
        found = reader.memo.get(key)
        if found is not None:
            if found[1] is _IN_PROGRESS:
                return reader.problem(node, "refers to itself")
            return reader.expected(node, self.expected) if found[1] is INVALID else found[1]
        if reader.too_deep(node):
            return INVALID
        reader.memo[key] = (node, _IN_PROGRESS)
        value = self.read(node, reader)
        reader.memo[key] = (node, value)
        return value

    def encode(self, value: Any, writer: Writer) -> Node:
        key = (id(value), id(self))
        found = writer.memo.get(key)
        if found is not None:
            return found[1] or writer.problem("refers to itself, which YAML cannot restore")
        if len(writer.parts) > MAX_DEPTH:
            return writer.problem(f"is nested deeper than {MAX_DEPTH} levels, which reading refuses")
        writer.memo[key] = (value, None)
        before = writer.problem_count
        node = self.write(value, writer)
        if writer.problem_count == before:
            writer.memo[key] = (value, node)
        else:  # a value that could not be written is a problem again in the next place that holds it
            del writer.memo[key]
        return node

    @abstractmethod
    def read(self, node: Node, reader: Reader) -> Any:
        """As `decode`, for a node seen for the first time."""

    @abstractmethod
    def write(self, value: Any, writer: Writer) -> Node:
        """As `encode`, for a value seen for the first time."""


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


def mapping_items(node: Node, reader: Reader) -> dict[str, Node]:
    """The entries of a mapping by name; duplicate and non-text keys are problems."""
    items: dict[str, Node] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode) or kind_of(key) is not Kind.TEXT:
            reader.problem(key, f"expected the name of a field as key, got {node_text(key)}")
        elif key.value in items:
            reader.problem(key, f"has the key {brief(key.value)} twice")
        else:
            items[key.value] = value
    return items


@dataclasses.dataclass(frozen=True)
class FieldPlan:
    """A constructor argument or a state field."""

    name: str
    converter: Converter
    required: bool
    default: Callable[[], Any]


class Plan:
    """The fields of one class, or the keyword arguments of one function."""

    def __init__(self, target: Any, compile_hint: Callable[[Any], Converter]) -> None:
        self.target = target
        self._compile = compile_hint

    @cached_property
    def fields(self) -> dict[str, FieldPlan]:
        """Constructor arguments in the order of their definition."""
        if not isinstance(self.target, type):
            return self._parameters()
        hints = field_types(self.target)
        return {
            f.name: FieldPlan(f.name, self._compile(hints[f.name]), _is_required(f), partial(initial_value, f))
            for f in dataclasses.fields(self.target)
            if not is_state(f)
        }

    @cached_property
    def states(self) -> dict[str, FieldPlan]:
        """The fields that a run changes."""
        hints = field_types(self.target)
        return {
            f.name: FieldPlan(f.name, self._compile(hints[f.name]), False, partial(initial_value, f))
            for f in dataclasses.fields(self.target)
            if is_state(f)
        }

    @cached_property
    def anything(self) -> Converter:
        """The converter of values without a declared type, such as the content of a `state_dict`."""
        return self._compile(Any)

    @cached_property
    def has_state_dict(self) -> bool:
        """Whether instances give (part of) their state by `state_dict`, as in PyTorch."""
        return hasattr(self.target, "state_dict") and hasattr(self.target, "load_state_dict")

    def _parameters(self) -> dict[str, FieldPlan]:
        try:
            hints = typing.get_type_hints(self.target)
        except NameError:  # names imported for type checkers only
            hints = {}
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {
            p.name: FieldPlan(p.name, self._compile(hints.get(p.name, Any)), False, partial(getattr, p, "default"))
            for p in inspect.signature(self.target).parameters.values()
            if p.kind in kinds
        }


def field_value(value: Any, name: str) -> Any:
    """What is written for a constructor field of an object. Raises AttributeError if the object no longer has it.

    A field whose attribute reads as something else, such as what was built of it, names in its metadata, as
    `SAVED_AS`, a function of the object and the name of the field that gives what is written.
    """
    saved_as = type(value).__dataclass_fields__[name].metadata.get(SAVED_AS)
    return getattr(value, name) if saved_as is None else saved_as(value, name)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def walk(root: Any) -> Iterator[tuple[Parts, Any]]:
    """Every serializable object within constructor fields, once, with its first path; an object before its parts."""
    seen: set[int] = set()
    stack: list[tuple[Parts, Any]] = [((), root)]
    while stack:
        path, value = stack.pop()
        children = list(_children(value))
        if not children and REGISTRY.registration_of(type(value)) is None:
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        if REGISTRY.registration_of(type(value)) is not None:
            yield path, value
        stack.extend(((*path, part), child) for part, child in reversed(children))


def _children(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, (list, tuple)):
        yield from enumerate(value)
    elif isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, functools.partial):
        yield from value.keywords.items()
    elif REGISTRY.registration_of(type(value)) is not None:
        for name in _constructor_fields(type(value)):  # type: ignore[arg-type]
            yield name, field_value(value, name)


@functools.cache
def _constructor_fields(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls) if not is_state(field))

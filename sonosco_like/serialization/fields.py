"""The fields of serializable classes, the arguments of functions, and the walk over the objects of a graph."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

from sonosco_like.serialization.converter import Converter
from sonosco_like.serialization.definition import SAVED_AS, field_types, initial_value, is_state
from sonosco_like.serialization.nodes import Parts
from sonosco_like.serialization.registry import REGISTRY


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

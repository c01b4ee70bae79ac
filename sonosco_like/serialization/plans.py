"""What each serializable class and function is made from: its fields with their converters, found once."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from sonosco_like.serialization.converter import Converter
from sonosco_like.serialization.definition import initial_value, is_state, type_hints


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
        hints = type_hints(self.target)
        return {
            f.name: FieldPlan(f.name, self._compile(hints[f.name]), _is_required(f), partial(initial_value, f))
            for f in dataclasses.fields(self.target)
            if not is_state(f)
        }

    @cached_property
    def states(self) -> dict[str, FieldPlan]:
        """Fields a run changes."""
        hints = type_hints(self.target)
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
        """Whether instances keep (part of) their state themselves, in the way of PyTorch."""
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
    """What a constructor field of an object was given.

    An object may replace a field by what it built from it (an optimizer record by the optimizer); `original_fields()`
    then says what the field was. Raises AttributeError if the object no longer has it.
    """
    originals = getattr(value, "original_fields", None)
    replaced = originals() if originals is not None else {}
    return replaced[name] if name in replaced else getattr(value, name)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING

"""Text where a field wants a path: in Python, `folder="plots"` is as good as `folder=Path("plots")`."""

from __future__ import annotations

import dataclasses
import functools
import os
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from sonosco_like.errors import DefinitionError

_UNIONS = (typing.Union, types.UnionType)
_ITEMS = (list, set, frozenset, tuple)


def mentions_path(hint: Any) -> bool:
    """Whether a type is a path or holds one."""
    if typing.get_origin(hint) is typing.Literal:
        return False
    is_path = isinstance(hint, type) and issubclass(hint, PurePath)
    return is_path or any(mentions_path(argument) for argument in typing.get_args(hint))


def with_paths(hint: Any, value: Any) -> Any:
    """The value with paths for texts, where the type wants paths and no texts; else the very same value."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(value, (str, os.PathLike)):
        wants_path = isinstance(hint, type) and issubclass(hint, PurePath)
        if wants_path and not isinstance(value, PurePath):
            return hint(value)
        return _of_union(arguments, value) if origin in _UNIONS else value
    if origin in _UNIONS:
        return _of_union(arguments, value)
    if origin is typing.Annotated:
        return with_paths(arguments[0], value)
    if isinstance(value, _ITEMS) and arguments and origin is not None and mentions_path(hint):
        return _items(arguments[0], value)
    if isinstance(value, Mapping) and len(arguments) == 2 and mentions_path(arguments[1]):
        found = {key: with_paths(arguments[1], each) for key, each in value.items()}
        return found if any(found[key] is not value[key] for key in value) else value
    return value


def _of_union(options: tuple[Any, ...], value: Any) -> Any:
    if isinstance(value, str) and any(_takes_text(option, value) for option in options):
        return value
    found = (with_paths(option, value) for option in options)
    return next((each for each in found if each is not value), value)


def _takes_text(hint: Any, text: str) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return text in typing.get_args(hint)
    return hint in (str, Any, object)


def _items(hint: Any, values: Any) -> Any:
    found = [with_paths(hint, each) for each in values]
    return type(values)(found) if any(a is not b for a, b in zip(found, values, strict=True)) else values


def take_text_for_paths(cls: type, hints_of: Callable[[type], dict[str, Any]]) -> None:
    """Have the constructor of a record take texts for its fields that are paths."""
    assign_fields: Callable[..., None] = cls.__init__  # type: ignore[misc]
    by_position = [field.name for field in dataclasses.fields(cls) if field.init and not field.kw_only]

    @functools.wraps(assign_fields)
    def construct(self: Any, *args: Any, **fields: Any) -> None:
        try:
            hints = hints_of(cls)
        except DefinitionError:  # a type that is not known: its values are left as they are
            hints = {}
        names = [*by_position, *[""] * len(args)]  # too many arguments are refused where they arrive
        args = tuple(with_paths(hints.get(name), value) for name, value in zip(names, args, strict=False))
        assign_fields(self, *args, **{name: with_paths(hints.get(name), value) for name, value in fields.items()})

    cls.__init__ = construct  # type: ignore[misc]


def has_path_field(cls: type, hints: dict[str, Any] | None) -> bool:
    """Whether a field of a record may be a path, as far as its types are known."""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    if hints is None:
        return any("Path" in str(field.type) for field in fields)
    return any(mentions_path(hints[field.name]) for field in fields if field.name in hints)

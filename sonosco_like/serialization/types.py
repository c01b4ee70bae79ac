"""From a field's type to its converter: the one list of which types a field may have."""

from __future__ import annotations

import collections.abc as abc
import enum
import functools
import sys
import types
import typing
from datetime import datetime, timedelta
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeVar, Union

from sonosco_like.errors import DefinitionError
from sonosco_like.serialization import atoms
from sonosco_like.serialization.callables import CallableConverter
from sonosco_like.serialization.containers import DictConverter, ListConverter, SetConverter, TupleConverter
from sonosco_like.serialization.converter import Converter
from sonosco_like.serialization.dynamic import AnyConverter, UnionConverter
from sonosco_like.serialization.objects import ClassConverter, ObjectConverter
from sonosco_like.serialization.plans import Plan

_ATOMS: dict[Any, Converter] = {
    bool: atoms.BOOLEAN,
    int: atoms.INTEGER,
    float: atoms.NUMBER,
    str: atoms.TEXT,
    None: atoms.NOTHING,
    type(None): atoms.NOTHING,
    datetime: atoms.DATETIME,
    timedelta: atoms.TIMEDELTA,
    Path: atoms.PATH,
    PurePath: atoms.PATH,
}
_SEQUENCES = (abc.Sequence, abc.Iterable, abc.Collection, abc.MutableSequence)
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)


def converter_for(hint: Any) -> Converter:
    """The converter of a type; the same one for the same type. Raises DefinitionError for what cannot be restored."""
    try:
        return _converter_for(hint)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _compile(hint)


@functools.cache
def _converter_for(hint: Any) -> Converter:
    return _compile(hint)


def plan_of(target: Any) -> Plan:
    """The plan of a serializable class or function; made once."""
    plan = _PLANS.get(target)
    if plan is None:
        plan = _PLANS[target] = Plan(target, converter_for)
    return plan


def _compile(hint: Any) -> Converter:
    if hint in _ATOMS:
        return _ATOMS[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return _ANYTHING
    if isinstance(hint, TypeVar):
        return converter_for(hint.__bound__ or Any)
    if isinstance(hint, typing.NewType):
        return converter_for(hint.__supertype__)
    if origin is Annotated or origin is typing.Final:
        return converter_for(arguments[0])
    if origin is Literal:
        return atoms.literal_converter(arguments)
    if origin in (Union, types.UnionType):
        return UnionConverter([converter_for(argument) for argument in arguments])
    if origin is type or hint is type:
        return ClassConverter(arguments[0] if arguments and isinstance(arguments[0], type) else object)
    if origin is abc.Callable or hint is abc.Callable or hint is typing.Callable:
        return CallableConverter(plan_of)
    return _container(origin or hint, arguments) or _class(origin or hint, hint)


def _container(kind: Any, arguments: tuple[Any, ...]) -> Converter | None:
    if kind is list or kind in _SEQUENCES:
        types_held = (list,) if kind is list else (list, tuple)
        return ListConverter(converter_for(arguments[0] if arguments else Any), types_held)
    if kind is tuple:
        repeated = not arguments or arguments[-1] is ...
        items = (arguments[0] if arguments else Any,) if repeated else arguments
        return TupleConverter([converter_for(item) for item in items], repeated)
    if kind in (set, frozenset, abc.Set, abc.MutableSet):
        kind = frozenset if kind is frozenset else set
        return SetConverter(converter_for(arguments[0] if arguments else Any), kind)
    if kind in _MAPPINGS:
        key, value = arguments or (Any, Any)
        return DictConverter(converter_for(key), converter_for(value))
    return None


def _class(cls: Any, hint: Any) -> Converter:
    if not isinstance(cls, type):
        raise DefinitionError(f"A field cannot have the type {hint!r}: it could not be restored. See docs/format.md.")
    if issubclass(cls, enum.Enum):
        return atoms.enum_converter(cls)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch and cls is torch.device:
        return atoms.device_converter()
    if torch and cls is torch.dtype:
        return atoms.dtype_converter()
    if torch and issubclass(cls, torch.Tensor):
        return atoms.TENSOR
    if numpy and issubclass(cls, numpy.ndarray):
        return atoms.ARRAY
    return ObjectConverter(cls, plan_of)


_PLANS: dict[Any, Plan] = {}
_ANYTHING = AnyConverter(converter_for)

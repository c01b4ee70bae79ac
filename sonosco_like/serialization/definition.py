"""`@serializable` and `state`: how a class declares its constructor fields and the fields that a run changes."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import inspect
import os
import sys
import types
import typing
from collections import Counter, abc
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import PurePath
from typing import Any, ClassVar, Literal, TypeVar, overload

from typing_extensions import dataclass_transform

from sonosco_like.errors import DefinitionError, as_sentence
from sonosco_like.serialization.registry import REGISTRY, Registration, public_name

T = TypeVar("T")
_STATE = "sonosco_like.state"
SAVED_AS = "sonosco_like.saved_as"  # metadata of a field: what is written for it, if not the attribute
_RESERVED = {"class": "it names the class to build", "state": "it holds what a run changed"}
_MADE_BY_PYTHON = ("_abc_", "_is_protocol", "_is_runtime_protocol")
_IMPOSSIBLE = (
    bytes, bytearray, memoryview, complex, range, slice, Generator, Iterator, types.ModuleType,
    type, frozenset, datetime.datetime, datetime.date, datetime.time, datetime.timedelta,
)  # fmt: skip
_UNIONS = (typing.Union, types.UnionType)
_ITEMS = (list, set, tuple)
_FORMS = {
    "list": (list, abc.Sequence, abc.Iterable, abc.Collection, abc.MutableSequence),
    "tuple": (tuple,),
    "set": (set, abc.Set, abc.MutableSet),
    "mapping": (dict, abc.Mapping, abc.MutableMapping),
    "function": (abc.Callable,),
}


def state(
    default: Any = dataclasses.MISSING, *, factory: Callable[[], Any] | None = None, init: Literal[False] = False
) -> Any:
    """Mark a field as changed by the run: not an argument of the constructor, saved and restored with the run.

    A mutable default is copied for each instance: `counts: dict[str, int] = state({})`. `init` only shows type
    checkers that the field is no argument.
    """
    if (default is dataclasses.MISSING) == (factory is None):
        raise DefinitionError("state(...) takes either a default or factory=..., so that a fresh object is complete.")
    factory = factory or functools.partial(copy.deepcopy, default)
    return dataclasses.field(init=init, repr=False, default_factory=factory, metadata={_STATE: True})


def is_state(field: dataclasses.Field[Any]) -> bool:
    """Whether a field was declared with `state(...)`."""
    return _STATE in field.metadata


def initial_value(field: dataclasses.Field[Any]) -> Any:
    """The value of a state field in a new object."""
    factory: Any = field.default_factory
    return factory() if field.default is dataclasses.MISSING else field.default


@overload
def serializable(target: T, /) -> T: ...
@overload
def serializable(*, version: int = 1, also: tuple[str, ...] = ()) -> Callable[[T], T]: ...
@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(dataclasses.field, state))
def serializable(target: Any = None, /, *, version: int = 1, also: tuple[str, ...] = ()) -> Any:
    """Let a class or function be written to, and built from, YAML.

    A class becomes a record: its annotated class-level fields are its keyword arguments, `__post_init__` builds what
    follows from them, and `state(...)` fields hold what a run changes. Equality stays identity.

    A class whose fields changed raises its `version`, lists its former names in `also`, and reads older files
    with `upgrade(version, fields)` or `upgrade_state(version, state)`, static methods that return the data of
    `version + 1`. A field that moved into another object becomes a dictionary of it: `{"position": {"epoch": 3}}`.
    """
    frame = inspect.currentframe()
    caller = frame.f_back if frame else None
    if target is not None:
        return _define(target, version, also, caller)
    return lambda decorated: _define(decorated, version, also, caller)


def _define(target: Any, version: int, also: tuple[str, ...], caller: Any) -> Any:
    if not isinstance(target, type) and not inspect.isfunction(target):
        raise DefinitionError(f"@serializable goes on a class or a function, not on {target!r}.")
    if target.__name__ == "<lambda>":
        raise DefinitionError("A lambda has no name that a file could use; define a function.")
    can_upgrade = hasattr(target, "upgrade") or hasattr(target, "upgrade_state") or not isinstance(target, type)
    if version < 1 or (version > 1 and not can_upgrade):
        raise DefinitionError(
            f"{target.__name__} has version {version}, but neither `upgrade(version, fields)` nor "
            f"`upgrade_state(version, state)` to read older files."
        )
    if isinstance(target, type):
        _make_record(target, caller)
    code = (caller.f_code.co_filename, caller.f_lineno) if caller else ("", 0)
    version = max(version, *(_version_of(base) for base in getattr(target, "__mro__", ())[1:]), 1)
    REGISTRY.add(
        Registration(public_name(target), target, version, also, (target.__module__, target.__qualname__, *code))
    )
    return target


def _version_of(base: type) -> int:
    """The version of a base class: a derived class has its fields, so its version is not lower."""
    entry = REGISTRY.registration_of(base)
    return 1 if entry is None else entry.version


def _make_record(cls: type, caller: Any) -> None:
    _refuse_own_init(cls)
    _refuse_unusable_names(cls)
    _refuse_untyped_attributes(cls)
    is_module = _is_torch_module(cls)
    dataclasses.dataclass(kw_only=True, eq=False, repr=not is_module)(cls)
    for field in dataclasses.fields(cls):
        _check_field(cls, field)
    if is_module:
        _let_torch_prepare(cls)
    scope = {**vars(cls), **vars(sys.modules[cls.__module__]), **(caller.f_locals if caller else {})}
    try:  # names of an enclosing function are only known now; forward references resolve later
        hints = typing.get_type_hints(cls, localns=scope)
    except NameError:
        hints = None
    if hints is not None:
        _check_types(cls, hints)
    cls.__resolved_hints__ = hints  # type: ignore[attr-defined]
    if has_path_field(cls, hints):
        take_text_for_paths(cls, field_types)


def field_types(cls: type) -> dict[str, Any]:
    """The types of a serializable class's fields."""
    hints = cls.__dict__.get("__resolved_hints__")
    if hints is None:
        try:
            hints = typing.get_type_hints(cls)
        except NameError as error:
            raise DefinitionError(
                f"A field type of {cls.__qualname__} cannot be resolved: {as_sentence(error)}"
            ) from None
        _check_types(cls, hints)
        cls.__resolved_hints__ = hints  # type: ignore[attr-defined]
    return hints


def _refuse_own_init(cls: type) -> None:
    if "__init__" in cls.__dict__:
        raise DefinitionError(
            f"{cls.__qualname__} has its own __init__, so what it was made from is not known and could not be saved. "
            f"Declare its arguments as typed fields of the class, and move the rest to __post_init__."
        )
    for base in cls.__mro__[1:]:
        own = "__init__" in base.__dict__ and base is not object
        if own and not (REGISTRY.registration_of(base) or dataclasses.is_dataclass(base) or _needs_no_arguments(base)):
            raise DefinitionError(
                f"{cls.__qualname__} inherits the __init__ of {base.__qualname__}, whose arguments could not be saved. "
                f"Keep a {base.__qualname__} in a field or make one in __post_init__ instead of inheriting from it."
            )


def _needs_no_arguments(base: type) -> bool:
    return getattr(base, "_is_protocol", False) or base.__module__ == "typing" or base is _torch_module_class()


def _refuse_unusable_names(cls: type) -> None:
    for name, hint in inspect.get_annotations(cls).items():
        if _is_init_only(hint):
            raise DefinitionError(f"{cls.__qualname__}.{name} is an InitVar, which an object forgets. Make it a field.")
        if name in _RESERVED:
            raise DefinitionError(f"{cls.__qualname__}.{name}: `{name}` is reserved in files ({_RESERVED[name]}).")


def _refuse_untyped_attributes(cls: type) -> None:
    annotations = inspect.get_annotations(cls)
    declared = (pair for base in cls.__mro__ for pair in inspect.get_annotations(base).items())
    constants = {name for name, hint in declared if _is_constant(hint)}
    for name, value in vars(cls).items():
        dunder = name.startswith("__") and name.endswith("__")
        behaviour = isinstance(value, type) or hasattr(value, "__get__")
        if name in annotations or name in constants or dunder or behaviour or name.startswith(_MADE_BY_PYTHON):
            continue
        kind = type(value).__name__
        raise DefinitionError(
            f"{cls.__qualname__}.{name} has no type. Write `{name}: {kind} = ...` for an argument, "
            f"`{name}: {kind} = state(...)` for what a run changes, `{name}: ClassVar[{kind}] = ...` for a constant."
        )


def _is_init_only(hint: Any) -> bool:
    if isinstance(hint, str):
        return hint.startswith(("InitVar", "dataclasses.InitVar"))
    return hint is dataclasses.InitVar or isinstance(hint, dataclasses.InitVar)


def _is_constant(hint: Any) -> bool:
    if isinstance(hint, str):
        return hint.startswith(("ClassVar", "typing.ClassVar"))
    return hint is ClassVar or typing.get_origin(hint) is ClassVar


def _check_field(cls: type, field: dataclasses.Field[Any]) -> None:
    name = f"{cls.__qualname__}.{field.name}"
    if not field.init and not is_state(field):
        raise DefinitionError(f"{name} is not an argument (init=False) and would be lost. Declare it with state(...).")
    if REGISTRY.registration_of(type(field.default)):
        raise DefinitionError(
            f"{name} has one {type(field.default).__qualname__} as default for all instances. "
            f"Write `field(default_factory=...)`, so that each gets its own."
        )


def _check_types(cls: type, hints: dict[str, Any]) -> None:
    for name, hint in hints.items():
        if typing.get_origin(hint) is not ClassVar:
            _check_type(f"{cls.__qualname__}.{name}", hint)


def _check_type(name: str, hint: Any) -> None:
    if (typing.get_origin(hint) or hint) in _IMPOSSIBLE:
        raise DefinitionError(
            f"{name} cannot have the type {hint!r}: a file could not restore it. "
            f"docs/format.md lists the types a field may have."
        )
    arguments = typing.get_args(hint) if typing.get_origin(hint) is not Literal else ()
    if typing.get_origin(hint) in _UNIONS and Any not in arguments:
        forms = Counter(_form(argument) for argument in arguments)
        twice = next((form for form, count in forms.items() if form and count > 1), None)
        if twice:
            raise DefinitionError(
                f"{name} cannot have the type {hint!r}: two of its types are written as a {twice}, so a file could "
                f"not tell them apart. Declare one {twice} of both, such as list[int | str]."
            )
    for argument in arguments:
        if isinstance(argument, type) or typing.get_origin(argument):
            _check_type(name, argument)


def _form(hint: Any) -> str:
    """The form in which values of a type are written, for types whose values cannot be told apart in a file."""
    kind = typing.get_origin(hint) or hint
    return next((form for form, kinds in _FORMS.items() if kind in kinds), "")


def _torch_module_class() -> type | None:
    """`torch.nn.Module` if torch was imported; a class cannot be one before, and torch takes a second to import."""
    torch = sys.modules.get("torch")
    return getattr(getattr(torch, "nn", None), "Module", None)


def _is_torch_module(cls: type) -> bool:
    module = _torch_module_class()
    return module is not None and issubclass(cls, module)


def _let_torch_prepare(cls: type) -> None:
    """Let `nn.Module` set up its tables before the fields are assigned, so that modules among them are registered."""
    for field in dataclasses.fields(cls):
        if field.name in vars(cls):  # a default kept on the class would hide a module assigned to the instance
            delattr(cls, field.name)
    assign_fields: Callable[..., None] = cls.__init__  # type: ignore[misc]
    prepare = typing.cast(Any, _torch_module_class()).__init__

    @functools.wraps(assign_fields)
    def construct(self: Any, **fields: Any) -> None:
        prepare(self)
        for name, former in getattr(cls, "former_names", {}).items():
            if former in fields:
                fields[name] = fields.pop(former)
        assign_fields(self, **fields)

    cls.__init__ = construct  # type: ignore[misc]


def mentions_path(hint: Any) -> bool:
    """Whether a type is a path or holds one."""
    if typing.get_origin(hint) is typing.Literal:
        return False
    is_path = isinstance(hint, type) and issubclass(hint, PurePath)
    return is_path or any(mentions_path(argument) for argument in typing.get_args(hint))


def with_paths(hint: Any, value: Any) -> Any:
    """The value with each text replaced by a path where the type has a path and no text; otherwise the same value."""
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
    """Let the constructor of a record accept texts for fields that are paths."""
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

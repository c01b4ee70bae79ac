"""A stage is a method; its start and its end are events.

A stage that a subclass, a mixin or a single object overrides stays a stage: its events are fired once, around the
outermost method. What `super()` calls inside it belongs to that call. The outermost method need not be marked with
`@stage`. Listeners see and change the arguments and the result of the outermost method.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import MethodType
from typing import Any, ParamSpec, TypeVar, cast

from sonosco_like.errors import UsageError
from sonosco_like.events.callback import Moment, Stop

P = ParamSpec("P")
R = TypeVar("R")
Hooks = dict[str, tuple[Any, ...]]  # by event; an event without listeners is not in it
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_NONE: frozenset[tuple[int, str]] = frozenset()
_INSIDE: ContextVar[frozenset[tuple[int, str]]] = ContextVar("stages whose outermost method is running, by host")


def stage(name: str, may_be_none: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a method of an object with `listeners` the stage `name`. It costs two look-ups without listeners.

    A listener that replaces the result by None is refused, unless the result of this stage `may_be_none`.
    """
    return functools.partial(_staged, name, may_be_none)


def _staged(name: str, may_be_none: bool, method: Callable[P, R]) -> Callable[P, R]:
    signature = inspect.signature(method)
    signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    call = cast(Callable[..., Any], method)
    bracket = _Bracket(name, signature, call)
    start, end = bracket.start, bracket.end

    @functools.wraps(method)
    def staged(*args: Any, **kwargs: Any) -> Any:  # a first argument of its own would cost a new tuple for each call
        host = args[0]
        hooks: Hooks = host.listeners.hooks
        if (start in hooks or end in hooks) and (id(host), name) not in _INSIDE.get(_NONE):
            return bracket.call(host, args[1:], kwargs)
        return call(*args, **kwargs) if kwargs else call(*args)

    staged.stage = name  # type: ignore[attr-defined]
    staged.may_be_none = may_be_none  # type: ignore[attr-defined]
    return cast(Callable[P, R], staged)


class _Bracket:
    """The start and the end of a stage around a method. The names of its arguments are found once."""

    def __init__(self, name: str, signature: inspect.Signature, method: Callable[..., Any]) -> None:
        """The signature is without the host."""
        self.start, self.end = f"{name}_start", f"{name}_end"
        self._name, self._signature, self._method = name, signature, method
        parameters = signature.parameters.values()
        self._is_plain = all(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)
        self._names = tuple(signature.parameters)

    def call(self, host: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the method for a host between the events of its start and its end."""
        listeners = host.listeners
        hooks: Hooks = listeners.hooks
        named = self._by_name(args, kwargs)
        starting, ending = hooks.get(self.start), hooks.get(self.end, ())
        if starting is not None:
            moment = Moment(self.start, host, named)
            listeners.notify(starting, moment)
            named = moment.args
            args, kwargs = self._as_arguments(named)
        moment = Moment(self.end, host, named)
        try:
            moment.result = self._method(host, *args, **kwargs)
        except Stop as stop:
            moment.error = stop
            listeners.notify(ending, moment)
            raise
        listeners.notify(ending, moment)
        return moment.result

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._is_plain and not kwargs and len(args) == len(self._names):
            return dict(zip(self._names, args, strict=True))
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        variadic = {name for name, each in self._signature.parameters.items() if each.kind in _VARIADIC}
        return {name: value for name, value in bound.arguments.items() if name not in variadic or value}

    def _as_arguments(self, named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for the call, as listeners have changed them."""
        if self._is_plain and tuple(named) == self._names:
            return tuple(named.values()), {}
        parameters = self._signature.parameters
        unknown = {name: value for name, value in named.items() if name not in parameters}
        missing = [
            name
            for name, each in parameters.items()
            if name not in named and each.kind not in _VARIADIC and each.default is each.empty
        ]
        takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        if missing or (unknown and not takes_any):
            did = f"removed {missing[0]!r} from" if missing else f"put {next(iter(unknown))!r} into"
            known = ", ".join(parameters) or "none"
            raise UsageError(f"A callback at {self.start} {did} the arguments of the stage, which are: {known}.")
        bound = inspect.BoundArguments(self._signature, cast(Any, named))
        return bound.args, {**bound.kwargs, **unknown}


@contextmanager
def _inside_stage(host: Any, name: str) -> Iterator[None]:
    """Call methods without events, because they belong to a stage whose events are fired already."""
    token = _INSIDE.set(_INSIDE.get(_NONE) | {(id(host), name)})
    try:
        yield
    finally:
        _INSIDE.reset(token)


def stages_of(host: Any) -> dict[str, list[str]]:
    """The stages that a class or an object has, with the names of the arguments of the outermost method."""
    found = sorted((name, attribute) for attribute, names in _staged_methods(_class_of(host)).items() for name in names)
    parameters = {name: _signature(host, attribute).parameters.values() for name, attribute in found}
    return {name: [each.name for each in taken if each.kind not in _VARIADIC] for name, taken in parameters.items()}


def stages_without_result(cls: type) -> set[str]:
    """The stages whose result may be replaced by None."""
    members = (each for base in cls.__mro__ for each in vars(base).values() if hasattr(each, "stage"))
    return {each.stage for each in members if each.may_be_none}


def wrap_overridden_stages(host: Any, hooks: Hooks) -> None:
    """Fire the events of each stage that is overridden and has listeners, around its outermost method.

    The object gets a method of its own for it. Without listeners or overrides nothing changes.
    """
    for attribute, names in _staged_methods(type(host)).items():
        if _is_ours(vars(host).get(attribute)):
            _restore(host, attribute)
        with_hooks = [name for name in names if f"{name}_start" in hooks or f"{name}_end" in hooks]
        if with_hooks and _is_overridden(host, attribute, names):
            own = vars(host).get(attribute)
            call = functools.partial(_call_own, own) if own is not None else _method_of(type(host), attribute)
            for name in reversed(with_hooks):
                call = _stage_around(name, _signature(host, attribute), call, own)
            setattr(host, attribute, MethodType(call, host))


def _staged_methods(cls: type) -> dict[str, list[str]]:
    """The stages of each method by its name, those of derived classes first."""
    found: dict[str, list[str]] = {}
    for base in cls.__mro__:
        for attribute, value in vars(base).items():
            name = getattr(value, "stage", None)
            if isinstance(name, str) and name not in found.setdefault(attribute, []):
                found[attribute].append(name)
    return {attribute: names for attribute, names in found.items() if names}


def _inherited(cls: type, attribute: str) -> list[Any]:
    """The definitions of a name in the classes of an object, the outermost first."""
    return [vars(base)[attribute] for base in cls.__mro__ if attribute in vars(base)]


def _own(host: Any, attribute: str) -> Any:
    """The function that was assigned to the object itself in place of a method, or None."""
    value = None if isinstance(host, type) else vars(host).get(attribute)
    return cast(Any, value).over if _is_ours(value) else value


def _is_overridden(host: Any, attribute: str, names: list[str]) -> bool:
    outermost, *others = _inherited(type(host), attribute)
    is_single = getattr(outermost, "stage", None) in names and not any(hasattr(each, "stage") for each in others)
    return _own(host, attribute) is not None or not is_single


def _stage_around(
    name: str, signature: inspect.Signature, call: Callable[..., Any], own: Callable[..., Any] | None
) -> Callable[..., Any]:
    def call_inside(host: Any, *args: Any, **kwargs: Any) -> Any:
        with _inside_stage(host, name):
            return call(host, *args, **kwargs)

    bracket = _Bracket(name, signature, call_inside)

    def staged(self: Any, *args: Any, **kwargs: Any) -> Any:
        hooks: Hooks = self.listeners.hooks
        if bracket.start not in hooks and bracket.end not in hooks:
            return call_inside(self, *args, **kwargs)
        return bracket.call(self, args, kwargs)

    staged.over = own  # type: ignore[attr-defined]
    return staged


def _is_ours(value: Any) -> bool:
    return isinstance(value, MethodType) and hasattr(value, "over")


def _restore(host: Any, attribute: str) -> None:
    over = _own(host, attribute)
    delattr(host, attribute)
    if over is not None:
        setattr(host, attribute, over)


def _call_own(own: Callable[..., Any], host: Any, *args: Any, **kwargs: Any) -> Any:
    return own(*args, **kwargs)


def _method_of(cls: type, attribute: str) -> Callable[..., Any]:
    """The method of a class as a function of the object, whatever kind of method it is."""
    defined = inspect.getattr_static(cls, attribute)
    if inspect.isfunction(defined):
        return defined
    bind = getattr(type(defined), "__get__", None)
    if bind is None:
        return functools.partial(_call_own, defined)
    return lambda host, *args, **kwargs: bind(defined, host, type(host))(*args, **kwargs)


def _class_of(host: Any) -> type:
    return host if isinstance(host, type) else type(host)


def _signature(host: Any, attribute: str) -> inspect.Signature:
    """The arguments of the outermost method; in the place of `*args` and `**kwargs` those that it passes on."""
    own = _own(host, attribute)
    levels = [_parameters(each) for each in _inherited(_class_of(host), attribute)]
    if own is not None:
        levels.insert(0, list(inspect.signature(own).parameters.values()))
    return inspect.Signature(functools.reduce(_completed, levels))


def _parameters(method: Any) -> list[inspect.Parameter]:
    """The parameters of a definition in a class, without the object or class that it is bound to."""
    if isinstance(method, functools.partialmethod):
        bound: Any = functools.partial(method.func, None, *method.args, **method.keywords)
        return list(inspect.signature(bound).parameters.values())
    function = method.__func__ if isinstance(method, (classmethod, staticmethod)) else method
    parameters = list(inspect.signature(function).parameters.values())
    return parameters[1:] if inspect.isfunction(method) or isinstance(method, classmethod) else parameters


def _completed(own: list[inspect.Parameter], other: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Parameters with those of another method in the place of variadic ones, if they begin as that method's do."""
    positional = [each for each in own if each.kind in _POSITIONAL]
    theirs = [each for each in other if each.kind in _POSITIONAL]
    rest = theirs[len(positional) :]
    begins_alike = [each.name for each in theirs[: len(positional)]] == [each.name for each in positional]
    optional = bool(positional) and positional[-1].default is not inspect.Parameter.empty
    if not begins_alike or (optional and any(each.default is each.empty for each in rest)):
        return own
    kinds = {each.kind: each for each in own}
    any_positional, any_keyword = (kinds.get(kind) for kind in _VARIADIC)
    keywords = [each for each in own if each.kind is each.KEYWORD_ONLY]
    more = [
        each for each in other if each.kind is each.KEYWORD_ONLY and each.name not in {own.name for own in keywords}
    ]
    return [
        *positional,
        *(rest if any_positional else ()),
        *([any_positional] if any_positional else ()),
        *keywords,
        *((each.replace(kind=each.KEYWORD_ONLY) for each in rest) if any_keyword and not any_positional else ()),
        *(more if any_keyword else ()),
        *([any_keyword] if any_keyword else ()),
    ]

"""Stages that subclasses, mixins or single objects override: each is heard once, around the outermost method.

What `super()` calls inside it belongs to that call and is not heard by itself. The outermost method need not be marked
with `@stage`: overriding inherits the stage. Its own arguments and its own result are what listeners see and change.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any, cast

from sonosco_like.events.stages import Hooks, let_hear, under_way

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def stages_of(host: Any) -> dict[str, list[str]]:
    """The stages a class or an object declares or inherits, with the names of the arguments of the outermost method."""
    found = sorted((name, attribute) for attribute, names in _staged_methods(_class_of(host)).items() for name in names)
    parameters = {name: _signature(host, attribute).parameters.values() for name, attribute in found}
    return {name: [each.name for each in taken if each.kind not in _VARIADIC] for name, taken in parameters.items()}


def stages_without_result(cls: type) -> set[str]:
    """The stages whose result may be replaced by None."""
    members = (each for base in cls.__mro__ for each in vars(base).values() if hasattr(each, "stage"))
    return {each.stage for each in members if each.may_be_none}


def let_overrides_be_heard(host: Any, hooks: Hooks) -> None:
    """Have each stage that is overridden, and that somebody listens to, be heard around its outermost method.

    The object gets a method of its own for it; where nobody listens, or nothing is overridden, nothing changes.
    """
    for attribute, names in _staged_methods(type(host)).items():
        if _is_ours(vars(host).get(attribute)):
            _restore(host, attribute)
        heard = [name for name in names if f"{name}_start" in hooks or f"{name}_end" in hooks]
        if heard and _is_overridden(host, attribute, names):
            own = vars(host).get(attribute)
            call = functools.partial(_call_own, own) if own is not None else _method_of(type(host), attribute)
            for name in reversed(heard):
                call = _bracket(name, _signature(host, attribute), call, own)
            setattr(host, attribute, MethodType(call, host))


def _staged_methods(cls: type) -> dict[str, list[str]]:
    """By the name of the method, the stages it is, those of derived classes first."""
    found: dict[str, list[str]] = {}
    for base in cls.__mro__:
        for attribute, value in vars(base).items():
            name = getattr(value, "stage", None)
            if isinstance(name, str) and name not in found.setdefault(attribute, []):
                found[attribute].append(name)
    return {attribute: names for attribute, names in found.items() if names}


def _inherited(cls: type, attribute: str) -> list[Any]:
    """What the classes of an object define under a name, the outermost first."""
    return [vars(base)[attribute] for base in cls.__mro__ if attribute in vars(base)]


def _own(host: Any, attribute: str) -> Any:
    """What somebody put on the object itself in the place of a method, or None."""
    value = None if isinstance(host, type) else vars(host).get(attribute)
    return cast(Any, value).over if _is_ours(value) else value


def _is_overridden(host: Any, attribute: str, names: list[str]) -> bool:
    outermost, *others = _inherited(type(host), attribute)
    is_single = getattr(outermost, "stage", None) in names and not any(hasattr(each, "stage") for each in others)
    return _own(host, attribute) is not None or not is_single


def _bracket(
    name: str, signature: inspect.Signature, call: Callable[..., Any], own: Callable[..., Any] | None
) -> Callable[..., Any]:
    def call_under_way(host: Any, *args: Any, **kwargs: Any) -> Any:
        with under_way(host, name):
            return call(host, *args, **kwargs)

    def staged(self: Any, *args: Any, **kwargs: Any) -> Any:
        if f"{name}_start" not in self.hooks and f"{name}_end" not in self.hooks:
            return call_under_way(self, *args, **kwargs)
        return let_hear(name, signature, call_under_way, self, *args, **kwargs)

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
    """The parameters of what a class defines, without the object or class it is bound to."""
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

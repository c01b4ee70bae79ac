"""A stage is a method; its start and its end are events.

A stage that a subclass overrides stays one (`overriding`): it is heard once, around the outermost method.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar, cast

from sonosco_like.errors import UsageError
from sonosco_like.events.moment import Moment, Stop

P = ParamSpec("P")
R = TypeVar("R")
Hooks = dict[str, tuple[Callable[[Moment], None], ...]]  # by event; an event nobody hears is not in it
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_UNDER_WAY: ContextVar[frozenset[tuple[int, str]]] = ContextVar("stages whose override is being called, by host")


def stage(name: str, may_be_none: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a method of an object with `hooks` the stage `name`. Costs two look-ups when nobody listens.

    A listener that puts None in the place of the result is refused, unless the result of this stage `may_be_none`.
    """
    return functools.partial(_staged, name, may_be_none)


def _staged(name: str, may_be_none: bool, method: Callable[P, R]) -> Callable[P, R]:
    start, end = f"{name}_start", f"{name}_end"
    signature = inspect.signature(method)
    signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    call = cast(Callable[..., Any], method)

    @functools.wraps(method)
    def staged(self: Any, *args: Any, **kwargs: Any) -> Any:
        hooks: Hooks = self.hooks
        if (start not in hooks and end not in hooks) or (id(self), name) in _UNDER_WAY.get(frozenset()):
            return call(self, *args, **kwargs)
        return let_hear(name, signature, call, self, *args, **kwargs)

    staged.stage = name  # type: ignore[attr-defined]
    staged.may_be_none = may_be_none  # type: ignore[attr-defined]
    return cast(Callable[P, R], staged)


def let_hear(
    name: str, signature: inspect.Signature, call: Callable[..., Any], host: Any, /, *args: Any, **kwargs: Any
) -> Any:
    """Call a method of a host between the start and the end of a stage. The signature is without the host."""
    hooks: Hooks = host.hooks
    moment = Moment(f"{name}_start", host, _by_name(signature, args, kwargs))
    fire(hooks, moment)
    args, kwargs = _as_arguments(name, signature, moment.args)
    moment.event = f"{name}_end"
    try:
        moment.result = call(host, *args, **kwargs)
    except Stop as stop:
        moment.error = stop
        fire(hooks, moment)
        raise
    fire(hooks, moment)
    return moment.result


@contextmanager
def under_way(host: Any, name: str) -> Iterator[None]:
    """What is called now belongs to a stage that is heard already, such as the methods it overrides."""
    token = _UNDER_WAY.set(_UNDER_WAY.get(frozenset()) | {(id(host), name)})
    try:
        yield
    finally:
        _UNDER_WAY.reset(token)


def _by_name(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    variadic = {name for name, each in signature.parameters.items() if each.kind in _VARIADIC}
    return {name: value for name, value in bound.arguments.items() if name not in variadic or value}


def _as_arguments(
    stage: str, signature: inspect.Signature, named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments for a call, from what listeners made of them."""
    parameters = signature.parameters
    unknown = {name: value for name, value in named.items() if name not in parameters}
    lacking = [
        name
        for name, each in parameters.items()
        if name not in named and each.kind not in _VARIADIC and each.default is each.empty
    ]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    if lacking or (unknown and not takes_any):
        did = f"removed {lacking[0]!r} from" if lacking else f"put {next(iter(unknown))!r} into"
        known = ", ".join(parameters) or "none"
        raise UsageError(f"A callback at {stage}_start {did} the arguments of the stage, which are: {known}.")
    bound = inspect.BoundArguments(signature, cast(Any, named))
    return bound.args, {**bound.kwargs, **unknown}


def fire(hooks: Hooks, moment: Moment) -> None:
    """Let every listener hear an event; a Stop or an error takes effect when all have, an error before a Stop."""
    stop: Stop | None = None
    failure: Exception | None = None
    for hook in hooks.get(moment.event, ()):
        try:
            hook(moment)
        except Stop as raised:
            stop = stop or raised
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
    if stop is not None:
        agree = getattr(moment.context, "agree_on", None)  # with other processes, of those that have them
        raise stop if agree is None else agree(stop)

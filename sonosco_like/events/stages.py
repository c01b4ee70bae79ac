"""A stage is a method; its start and its end are events."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from sonosco_like.events.moment import Moment, Stop

P = ParamSpec("P")
R = TypeVar("R")
Hooks = dict[str, tuple[Callable[[Moment], None], ...]]  # by event; an event nobody hears is not in it


def stage(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a method of an object with `hooks` the stage `name`. Costs two look-ups when nobody listens."""
    return functools.partial(_staged, name)


def _staged(name: str, method: Callable[P, R]) -> Callable[P, R]:
    start, end = f"{name}_start", f"{name}_end"
    signature = inspect.signature(method)
    call = cast(Callable[..., Any], method)

    @functools.wraps(method)
    def staged(self: Any, *args: Any, **kwargs: Any) -> Any:
        hooks: Hooks = self.hooks
        if start not in hooks and end not in hooks:
            return call(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        moment = Moment(start, self, {key: value for key, value in bound.arguments.items() if key != "self"})
        fire(hooks, moment)
        moment.event = end
        try:
            moment.result = call(self, **moment.args)
        except Stop as stop:
            moment.error = stop
            fire(hooks, moment)
            raise
        fire(hooks, moment)
        return moment.result

    staged.stage = name  # type: ignore[attr-defined]
    return cast(Callable[P, R], staged)


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
        raise stop


def stages_of(cls: type) -> dict[str, list[str]]:
    """The stages a class declares or inherits, with the names of their arguments."""
    members = [member for _, member in inspect.getmembers(cls, lambda member: hasattr(member, "stage"))]
    return {member.stage: list(inspect.signature(member).parameters)[1:] for member in members}

"""What a hook must look like, and what is refused because it would never be called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from sonosco_like.errors import UsageError
from sonosco_like.events.near_names import meant_event, near_event

_OVER = ("init_start", "init_end")  # before anybody can listen but the class itself


def check_hook(owner: str, name: str, method: Callable[..., Any], events: set[str]) -> None:
    """Refuse a hook `on_<event>` of an event that there is not, or one that does not take the moment."""
    event = name.removeprefix("on_")
    if event not in events:
        raise UsageError(f"{owner} would never be called: there is no event {event!r}{near_event(event, events)}.")
    check_moment(owner, name, method)


def check_moment(owner: str, name: str, method: Callable[..., Any]) -> None:
    """Refuse a hook that takes anything but the moment."""
    required = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty]
    if len(required) != 2:
        raise UsageError(f"{owner} must take the moment and nothing else: `def {name}(self, moment)`.")


def check_call(listener: Callable[..., Any]) -> None:
    """Refuse a callable that does not take what is told after every batch."""
    try:
        inspect.signature(listener).bind(0, 0, {}, None)
    except TypeError:
        name = getattr(listener, "__name__", type(listener).__name__)
        raise UsageError(f"{name} must take epoch, step, performance_measures and context when it is called.") from None


def refuse_too_late(owner: str, event: str) -> None:
    """Refuse a listener of what is over when it is attached."""
    if event in _OVER:
        raise UsageError(
            f"{owner} would never be called: {event!r} is over when a callback is attached. Hear 'attach' instead, or "
            f"list ('pre-init', function) as `callbacks` in the body of a trainer class of yours."
        )


def refuse_assigned(listener: Any, events: set[str]) -> None:
    """Refuse a function that was put on an object as `on_<event>`: hooks are found in its class."""
    for name, value in vars(listener).items():
        event = name.removeprefix("on_")
        if name.startswith("on_") and event in events and callable(value):
            raise UsageError(
                f"`{name}` was assigned to a {type(listener).__name__}, where nobody hears it. "
                f"Write add_callback(({event!r}, function)), or define it in the class."
            )


def refuse_bound_otherwise(place: str, method: Any) -> None:
    """Refuse a hook that is no method of the object, such as a `classmethod`: it would not be called."""
    if callable(method) or isinstance(method, (classmethod, functools.partialmethod)):
        raise UsageError(f"{place} would never be called: a hook is a plain method, and not a {type(method).__name__}.")


def refuse_methods_of_others(cls: type, events: set[str]) -> None:
    """Refuse methods of a callback that other systems would call, and nobody calls here."""
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        taken = list(inspect.signature(method).parameters)[1:]
        is_event = name in events and name.endswith(("_start", "_end"))
        if name == "run_event":
            raise UsageError(f"{cls.__qualname__}.run_event would never be called: write `on_event(self, moment)`.")
        if is_event or taken == ["state", "logger"] or (name.startswith(("pre_", "post_")) and "callback" in name):
            event = meant_event(name.removesuffix("_callback"), events) or (name if is_event else None)
            remedy = f"write `on_{event}(self, moment)`" if event else "a hook is `on_<event>(self, moment)`"
            raise UsageError(f"{cls.__qualname__}.{name} would never be called: {remedy}.")

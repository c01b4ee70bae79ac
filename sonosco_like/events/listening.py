"""From callbacks to hooks: found once, checked when attached, so that the loop only calls what listens."""

from __future__ import annotations

import inspect
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sonosco_like.errors import SonoscoError, UsageError
from sonosco_like.events.callback import AbstractCallback
from sonosco_like.events.event import Event
from sonosco_like.events.moment import Moment, Stop
from sonosco_like.events.overriding import let_overrides_be_heard, stages_of, stages_without_result
from sonosco_like.events.own_hooks import own_hooks
from sonosco_like.events.pairs import Pair, check_pair, event_of_pair, hook_of_pair
from sonosco_like.events.signatures import (
    check_call,
    check_hook,
    check_moment,
    refuse_assigned,
    refuse_bound_otherwise,
    refuse_methods_of_others,
    refuse_too_late,
)
from sonosco_like.events.stages import Hooks

logger = logging.getLogger(__name__)

Listener = AbstractCallback | Pair | Callable[..., Any]
_NOTHING = (
    "it put nothing in the place of the result, a {}. Return the result, or a new one; a function that only looks does "
    "not take `return_value`"
)
Disabled = dict[int, Any]  # owners of hooks that are not called any more, by their ids


class CallbackError(SonoscoError):
    """A callback failed; says which one, and at which event."""


class Hook:
    """One listener of one event: names itself when it fails, and knows how long it took."""

    def __init__(
        self,
        owner: Any,
        event: str,
        function: Callable[[Moment], Any],
        seconds: dict[str, float],
        disabled: Disabled,
        may_be_none: bool = False,
    ) -> None:
        self.owner = owner
        self.event = event
        self.function = function
        self.seconds = seconds
        self.name = _name_of(owner)
        self.policy = getattr(owner, "on_failure", "raise")
        self.disabled = disabled  # shared by all hooks
        self.may_be_none = may_be_none  # what takes the place of the result
        self.before: Callable[[Any], None] | None = None  # called with the owner before it hears

    def __call__(self, moment: Moment) -> None:
        if id(self.owner) in self.disabled:
            return
        if self.before is not None:
            self.before(self.owner)
        start, result = time.perf_counter(), moment.result
        try:
            self.function(moment)
            if moment.result is None and result is not None and not self.may_be_none:
                moment.result = result
                raise UsageError(_NOTHING.format(type(result).__name__))
        except Stop:
            raise
        except Exception as error:
            self._failed(error)
        finally:
            self.seconds[self.name] += time.perf_counter() - start

    def _failed(self, error: Exception) -> None:
        said = f"{self.name} failed at {self.event}: {type(error).__name__}: {error}"
        if self.policy == "raise":
            raise CallbackError(said) from error
        if self.policy == "disable":
            self.disabled[id(self.owner)] = self.owner
        logger.warning("%s%s", said, "; it is not called any more" if self.policy == "disable" else "")


def _name_of(owner: Any) -> str:
    if isinstance(owner, tuple):
        name = getattr(owner[1], "__name__", "<lambda>")
        return f"the function at {owner[0]}" if name == "<lambda>" else str(name)
    return str(getattr(owner, "__name__", None) or type(owner).__name__)


def known_events(host: type) -> set[str]:
    """What can be heard of an object: the declared events, its stages, and events it fires by its own name."""
    stages = list(stages_of(host))
    own = getattr(host, "events", ())
    return {event.value for event in Event} | {f"{s}_{end}" for s in stages for end in ("start", "end")} | set(own)


def listen(host: Any, listeners: Sequence[Listener], rank: int = 0) -> tuple[Hooks, dict[str, float]]:
    """The hooks of an object: its own first, base classes before derived ones, then the listeners in their order.

    Also returns the seconds spent in each listener, which grow as the hooks are called. Raises UsageError for hooks
    that would never be called, or could not be.
    """
    seconds: dict[str, float] = defaultdict(float)
    found = _find(host, listeners, rank, seconds, {})
    return _table(host, found), seconds


def listen_anew(
    host: Any, before: Sequence[Listener], listeners: Sequence[Listener], rank: int = 0
) -> tuple[Hooks, Hooks]:
    """The hooks of an object whose listeners change while it runs, and among them those of the newcomers.

    Who stays goes on as it was, also if disabled; its seconds go on growing. Who leaves hears nothing more, not even
    the ends of the stages under way.
    """
    present = [hook for hooks in host.hooks.values() for hook in hooks]
    disabled: Disabled = present[0].disabled if present else {}
    old, new = {id(each) for each in before}, {id(each) for each in listeners}
    found = _find(host, listeners, rank, host.seconds_in_callbacks, disabled)
    for each in listeners:
        if id(each) not in old:
            disabled.pop(id(each), None)  # it left and comes back
    disabled.update((id(each), each) for each in before if id(each) not in new)
    newcomers: Hooks = {
        event: tuple(hook for hook in hooks if id(hook.owner) in new - old) for event, hooks in found.items()
    }
    return _table(host, found), newcomers


def close(listeners: Iterable[Any]) -> None:
    """Close those that can be closed; one that fails does not keep the others from it."""
    for listener in listeners:
        if hasattr(listener, "close"):
            try:
                listener.close()
            except Exception:
                logger.exception("%s failed in close().", type(listener).__name__)


def _find(
    host: Any, listeners: Sequence[Listener], rank: int, seconds: dict[str, float], disabled: Disabled
) -> dict[str, list[Hook]]:
    events, stages = known_events(type(host)), stages_of(host)
    free = {f"{name}_end" for name in stages_without_result(type(host))}
    found: dict[str, list[Hook]] = defaultdict(list)
    for event, function in own_hooks(host, events):
        found[event].append(Hook(host, event, function, seconds, disabled, event in free))
    for listener in sorted(listeners, key=lambda each: getattr(each, "order", 0)):
        ranks = getattr(listener, "ranks", None)
        if ranks is None or rank in ranks:
            for event, function in _hooks_of(listener, events, stages):
                found[event].append(Hook(listener, event, function, seconds, disabled, event in free))
    return found


def _table(host: Any, found: dict[str, list[Hook]]) -> Hooks:
    hooks: Hooks = {event: tuple(each) for event, each in found.items()}
    let_overrides_be_heard(host, hooks)
    return hooks


def _hooks_of(
    listener: Listener, events: set[str], stages: dict[str, list[str]]
) -> Iterable[tuple[str, Callable[[Moment], Any]]]:
    if isinstance(listener, tuple):
        check_pair(listener, "A pair in `callbacks`")
        event = event_of_pair(listener, events)
        refuse_too_late(f"The function at {listener[0]!r}", event)
        yield event, hook_of_pair(listener, event, stages)
        return
    cls = type(listener)
    if not isinstance(listener, AbstractCallback):
        if not callable(listener):
            raise UsageError(f"A callback is an AbstractCallback, an (event, function) pair or a callable, not {cls}.")
        check_call(listener)
        yield Event.BATCH_END.value, _after_batch(listener)
        return
    refuse_methods_of_others(cls, events)
    refuse_assigned(listener, events)
    if cls.__call__ is not AbstractCallback.__call__:
        check_call(listener)
        yield Event.BATCH_END.value, _after_batch(listener)
    for name, method in inspect.getmembers(cls):
        owner, event = f"{cls.__qualname__}.{name}", name.removeprefix("on_")
        if not inspect.isfunction(method):
            if name.startswith("on_") and event in (*events, "event"):
                refuse_bound_otherwise(owner, inspect.getattr_static(cls, name))
        elif name == "on_event":
            check_moment(owner, name, method)
            yield from ((event, method.__get__(listener)) for event in sorted(events))
        elif name.startswith("on_"):
            refuse_too_late(owner, event)
            check_hook(owner, name, method, events)
            yield event, method.__get__(listener)


def _after_batch(listener: Callable[..., Any]) -> Callable[[Moment], None]:
    def call(moment: Moment) -> None:
        context = moment.context
        listener(context.epoch, context.step, context.performance_measures, context)

    return call

"""The listeners of a run. Hooks are found and checked when they are attached: the loop only calls them."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sonosco_like.errors import SonoscoError, UsageError
from sonosco_like.events.callback import Moment, Stop
from sonosco_like.events.event import Event
from sonosco_like.events.hooks import Listener, hooks_of_class, hooks_of_listener
from sonosco_like.events.stages import Hooks, stages_of, stages_without_result, wrap_overridden_stages

logger = logging.getLogger(__name__)


class CallbackError(SonoscoError):
    """A callback failed; the message names it and the event."""


class Hook:
    """A function that is called at an event, with the callback to which it belongs."""

    __slots__ = ("before", "event", "function", "is_call", "is_off", "may_be_none", "name", "owner")

    def __init__(self, owner: Any, event: str, function: Callable[..., Any], may_be_none: bool) -> None:
        self.owner, self.event, self.function = owner, event, function
        self.is_call = function is owner  # Sonosco's call after a batch, which takes no moment
        self.name = _name_of(owner)
        self.may_be_none = may_be_none  # whether it may replace the result of the stage by None
        self.is_off = False  # it is not called any more
        self.before: Callable[[Any], None] | None = None  # called with the owner before the function


class Listeners:
    """The listeners of one object, the host: the hooks of its class first, then callbacks in their order.

    `hooks` are those that are called, by event: an event without listeners is not in it. `seconds` is the time spent in
    each listener, by its name. With several processes, `agree` turns a Stop of this one into the Stop of all.
    """

    def __init__(self, host: Any, rank: int = 0, agree: Callable[[Stop], Stop] | None = None) -> None:
        self.hooks: Hooks = {}
        self.seconds: dict[str, float] = defaultdict(float)
        self.is_open = False
        self._host, self._rank, self._agree = host, rank, agree
        self._listeners: list[Listener] = []
        self._disabled: list[Any] = []
        self._before: Callable[[Any], None] | None = None
        self._not_before: Collection[str] = ()
        self.attach(())

    def attach(self, listeners: Sequence[Listener]) -> None:
        """Make these the only listeners. Raises UsageError for a hook that would never be called."""
        hooks = self._find(listeners)
        self._listeners, self._disabled, self.seconds = list(listeners), [], defaultdict(float)
        self._before = None
        self._take(hooks)

    def open(self, listeners: Sequence[Listener]) -> None:
        """Begin a run with these listeners, from the event `attach` on."""
        self.attach(listeners)
        self.is_open = True
        self.fire(Event.ATTACH.value)

    def close(self, listeners: Iterable[Listener]) -> None:
        """End a run: close these listeners, also those that were refused."""
        self.is_open = False
        close(listeners)

    @contextmanager
    def replacing(self, listeners: Sequence[Listener]) -> Iterator[None]:
        """Replace the listeners, also during a run; in the body the host stores the new ones.

        A listener that stays continues as it was, also if it is disabled. A removed one is closed and not called any
        more, not even at the ends of present stages. A new one is called at `attach` and at later stages.
        """
        if not self.is_open:
            yield
            return
        before, after = self._listeners, list(listeners)
        leaving, coming = _missing_in(after, before), _missing_in(before, after)
        hooks = self._find(after)
        self._turn_off(leaving)
        self._disabled = _missing_in(coming, self._disabled)  # a listener that left may come back
        self._listeners = after
        self._take(hooks)
        yield
        close(leaving)
        attached = self.hooks.get(Event.ATTACH.value, ())
        self.notify([hook for hook in attached if _holds(coming, hook.owner)], Moment(Event.ATTACH.value, self._host))

    def call_before(self, function: Callable[[Any], None], except_at: Collection[str]) -> None:
        """Call a function with each listener before the listener is called, except at some events."""
        self._before, self._not_before = function, except_at
        self._take(self.hooks)

    def has_listener(self, event: str) -> bool:
        """Whether an event has listeners."""
        return event in self.hooks

    def fire(self, event: str, error: BaseException | None = None, **args: Any) -> Moment:
        """Call every listener of an event."""
        moment = Moment(event, self._host, args, error=error)
        self.notify(self.hooks.get(event, ()), moment)
        return moment

    def notify(self, hooks: Iterable[Hook], moment: Moment) -> None:
        """Call hooks in turn. A Stop or an error takes effect when all were called, an error before a Stop."""
        stop: Stop | None = None
        failure: Exception | None = None
        clock, seconds = time.perf_counter, self.seconds
        start, measures = clock(), None
        for hook in hooks:
            if hook.is_off:
                continue
            try:
                if hook.before is not None:
                    hook.before(hook.owner)
                if hook.is_call:
                    if measures is None:
                        measures = _measures_of(moment.context)
                    hook.function(*measures)
                    result = None
                else:
                    result = moment.result
                    hook.function(moment)
                if result is not None and moment.result is None and not hook.may_be_none:
                    moment.result = result
                    raise UsageError(
                        f"it put nothing in the place of the result, a {type(result).__name__}. Return the result, or "
                        f"a new one; a function that only looks does not take `return_value`"
                    )
            except Stop as raised:
                stop = stop or raised
            except Exception as error:
                failure = failure or self._handle_failure(hook, error)
            now = clock()
            seconds[hook.name] += now - start
            start = now
        if failure is not None:
            raise failure
        if stop is not None:
            raise stop if self._agree is None else self._agree(stop)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Run stages, also those that a user overrides, without calling listeners."""
        before, self.hooks = self.hooks, {}
        try:
            yield
        finally:
            self.hooks = before

    def _handle_failure(self, hook: Hook, error: Exception) -> Exception | None:
        """Treat the failure of a hook as the `on_failure` of its callback says: return the error to raise, or warn."""
        policy = getattr(hook.owner, "on_failure", "raise")
        message = f"{hook.name} failed at {hook.event}: {type(error).__name__}: {error}"
        if policy == "raise":
            failure = CallbackError(message)
            failure.__cause__ = error
            return failure
        if policy == "disable":
            self._disabled.append(hook.owner)
            self._turn_off([hook.owner])
        logger.warning("%s%s", message, "; it is not called any more" if policy == "disable" else "")
        return None

    def _turn_off(self, owners: Sequence[Any]) -> None:
        for hook in (hook for hooks in self.hooks.values() for hook in hooks):
            hook.is_off = hook.is_off or _holds(owners, hook.owner)

    def _find(self, listeners: Sequence[Listener]) -> Hooks:
        events, stages = known_events(type(self._host)), stages_of(self._host)
        free = {f"{name}_end" for name in stages_without_result(type(self._host))}
        found: dict[str, list[Hook]] = defaultdict(list)
        for event, function in hooks_of_class(self._host, events):
            found[event].append(Hook(self._host, event, function, event in free))
        for listener in sorted(listeners, key=lambda each: getattr(each, "order", 0)):
            ranks = getattr(listener, "ranks", None)
            if ranks is None or self._rank in ranks:
                for event, function in hooks_of_listener(listener, events, stages):
                    found[event].append(Hook(listener, event, function, event in free))
        return {event: tuple(hooks) for event, hooks in found.items()}

    def _take(self, found: Hooks) -> None:
        for hook in (hook for hooks in found.values() for hook in hooks):
            hook.is_off = _holds(self._disabled, hook.owner)
            hook.before = None if hook.event in self._not_before else self._before
        self.hooks = found
        wrap_overridden_stages(self._host, found)


def close(listeners: Iterable[Any]) -> None:
    """Close all that can be closed, also if one of them fails."""
    for listener in listeners:
        if hasattr(listener, "close"):
            try:
                listener.close()
            except Exception:
                logger.exception("%s failed in close().", type(listener).__name__)


def without_listener(listeners: Sequence[Listener], removed: Any) -> list[Listener]:
    """The listeners but one, or but all instances of a class. Raises UsageError if there is none to remove."""
    by_class = isinstance(removed, type)
    left = [each for each in listeners if not (isinstance(each, removed) if by_class else each is removed)]
    if len(left) == len(listeners):
        name = removed.__name__ if by_class else type(removed).__name__
        raise UsageError(f"The trainer has no callback {name} to remove.")
    return left


def known_events(host: type) -> set[str]:
    """The events of an object: those that are declared, its stages, and those that it fires by its own name."""
    stages = {f"{name}_{end}" for name in stages_of(host) for end in ("start", "end")}
    return {event.value for event in Event} | stages | set(getattr(host, "events", ()))


def _measures_of(context: Any) -> tuple[int, int, Any, Any]:
    """What Sonosco's call after a batch takes."""
    return context.epoch, context.step, context.performance_measures, context


def _name_of(owner: Any) -> str:
    if isinstance(owner, tuple):
        name = getattr(owner[1], "__name__", "<lambda>")
        return f"the function at {owner[0]}" if name == "<lambda>" else str(name)
    return str(getattr(owner, "__name__", None) or type(owner).__name__)


def _holds(objects: Iterable[Any], wanted: Any) -> bool:
    return any(each is wanted for each in objects)


def _missing_in(others: Sequence[Any], objects: Sequence[Any]) -> list[Any]:
    """The objects that are not among the others."""
    return [each for each in objects if not _holds(others, each)]

"""How hooks are found and what they must look like: methods `on_<event>`, (event, function) pairs, hooks of a class.

("pre-loss", lambda trainer, batch: shifted(batch))           takes and replaces an argument of the stage
("post-loss", lambda trainer, return_value: 2 * return_value) replaces its result
("epoch_end", lambda moment: print(moment.context.epoch))     takes the moment itself

A hook that would never be called is refused when it is attached.
"""

from __future__ import annotations

import dis
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sonosco_like.errors import UsageError
from sonosco_like.events.callback import AbstractCallback, Moment
from sonosco_like.events.event import STAGES_OF_OTHERS, Event, meant_event, near_event
from sonosco_like.events.stages import stages_of

Pair = tuple[str, Callable[..., Any]]
Listener = AbstractCallback | Pair | Callable[..., Any]
_ENDS = {"pre": "start", "post": "end"}
_OVER = ("init_start", "init_end")  # only the class itself can listen so early
_PAIR_METHOD = re.compile(r"(pre|post)_(.+)_callback")


def take_class_callbacks(cls: type) -> None:
    """Take the callbacks that a class lists in its body: `callbacks = [("pre-batch", function)]`.

    The list becomes the `class_callbacks` of the class, which are called before the `callbacks` of an instance.
    """
    listed = vars(cls).get("callbacks")
    if isinstance(listed, (list, tuple)):
        cls.class_callbacks = [*vars(cls).get("class_callbacks", ()), *listed]  # type: ignore[attr-defined]
        del cls.callbacks  # type: ignore[attr-defined]
        annotations = inspect.get_annotations(cls)
        if annotations.pop("callbacks", None) is not None:
            cls.__annotations__ = annotations


def hooks_of_class(host: Any, events: set[str]) -> Iterator[tuple[str, Callable[[Moment], Any]]]:
    """The hooks that a class defines for itself, each once: base first, in a class its list before its methods."""
    stages = stages_of(host)
    refuse_assigned(host, events)
    for cls in reversed(type(host).__mro__):
        for pair in vars(cls).get("class_callbacks", ()):
            check_pair(pair, f"The list `callbacks` of the class {cls.__qualname__}")
            event = event_of_pair(pair, events)
            yield event, hook_of_pair(pair, event, stages)
        for name, method in vars(cls).items():
            place = f"{cls.__qualname__}.{name}"
            if not inspect.isfunction(method):
                if (name.startswith("on_") and name[3:] in events) or _PAIR_METHOD.fullmatch(name):
                    refuse_bound_otherwise(place, method)
                continue
            if name.startswith("on_"):
                check_hook(place, name, method, events)
                _refuse_call_of_parent(place, name, method, type(host))
                yield name.removeprefix("on_"), method.__get__(host)
            elif match := _PAIR_METHOD.fullmatch(name):
                _refuse_call_of_parent(place, name, method, type(host))
                pair = (f"{match[1]}-{match[2]}", method)
                event = event_of_pair(pair, events)
                yield event, hook_of_pair(pair, event, stages)


def _refuse_call_of_parent(place: str, name: str, method: Any, host: type) -> None:
    if _calls_parent(method, name, {cls.__name__ for cls in host.__mro__}):
        raise UsageError(
            f"{place} calls {name} of a base class, which would then be called twice: each class's own hook is called, "
            f"those of base classes first. Leave that call out."
        )


def _calls_parent(method: Any, name: str, classes: set[str]) -> bool:
    """Whether a method reads its own name from `super()` or from a class that is named."""
    code = [each for each in dis.get_instructions(method) if each.opname not in ("PRECALL", "CACHE", "PUSH_NULL")]
    for place, instruction in enumerate(code):
        if instruction.argval != name or not instruction.opname.startswith("LOAD_") or place == 0:
            continue
        before = code[place - 1]
        if instruction.opname == "LOAD_SUPER_ATTR" or _gives_super(code, place) or before.argval in classes:
            return True
        kept = before.argval if before.opname.startswith("LOAD_FAST") else None
        if any(
            each.opname == "STORE_FAST" and each.argval == kept and _gives_super(code, where)
            for where, each in enumerate(code[:place])
        ):
            return True
    return False


def _gives_super(code: list[dis.Instruction], place: int) -> bool:
    """Whether an instruction uses the result of a call of `super`."""
    before = code[max(0, place - 5) : place]
    return bool(before) and before[-1].opname.startswith("CALL") and "super" in [each.argval for each in before]


def hooks_of_listener(
    listener: Listener, events: set[str], stages: dict[str, list[str]]
) -> Iterable[tuple[str, Callable[..., Any]]]:
    """The hooks of a callback, a pair or a callable, each with its event; a listener that is called is its own hook."""
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
        yield Event.BATCH_END.value, listener
        return
    refuse_methods_of_others(cls, events)
    refuse_assigned(listener, events)
    if cls.__call__ is not AbstractCallback.__call__:
        check_call(listener)
        yield Event.BATCH_END.value, listener
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


def check_pair(pair: Any, place: str) -> None:
    """Refuse a value that is not a pair of a text and a callable."""
    is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str) and callable(pair[1])
    if not is_pair:
        raise UsageError(
            f"{place} holds (event, function) pairs, such as ('post-epoch', function), and not {pair!r}. "
            f"A callback object belongs in the `callbacks` that the constructor takes."
        )


def event_of_pair(pair: Pair, events: set[str]) -> str:
    """The event that a pair names: `batch_end`, `post-batch` or, as in ArcticTraining, `post-step`.

    Raises UsageError if there is none of that name.
    """
    name = pair[0]
    before, mark, stage = name.partition("-")
    stage = stage.replace("-", "_")
    found = [name.replace("-", "_")]
    if mark and before in _ENDS:
        found = [f"{each}_{_ENDS[before]}" for each in (stage, STAGES_OF_OTHERS.get(stage, stage))]
    for event in found:
        if event in events:
            return event
    raise UsageError(f"There is no event {name!r} to attach a function to{near_event(found[0], events)}.")


def hook_of_pair(pair: Pair, event: str, stages: dict[str, list[str]]) -> Callable[[Moment], None]:
    """The function of a pair as a hook of the event. Raises UsageError if it has an argument that the stage lacks."""
    name, function = pair
    names = list(inspect.signature(function).parameters)
    if names == ["moment"]:
        return function
    stage = event.removesuffix("_start").removesuffix("_end")
    unknown = [each for each in names[1:] if stage in stages and each not in stages[stage]]
    if unknown and names[1:] != ["return_value"]:
        known = ", ".join(stages[stage]) or "no arguments"
        raise UsageError(f"The function at {name!r} takes {unknown[0]!r}, but the stage {stage!r} has {known}.")
    if names[1:] == ["return_value"]:
        return lambda moment: setattr(moment, "result", function(moment.context, moment.result))
    return lambda moment: _call(function, names[1:], moment)


def _call(function: Callable[..., Any], wanted: list[str], moment: Moment) -> None:
    missing = [name for name in wanted if name not in moment.args]
    if missing:
        known = ", ".join(moment.args) or "no arguments"
        raise UsageError(f"{moment.event} has no argument {missing[0]!r}; it has {known}.")
    returned = function(moment.context, *(moment.args[name] for name in wanted))
    if returned is None or not wanted:  # a function that returns nothing only looked
        return
    values = returned if len(wanted) > 1 else (returned,)
    if not isinstance(values, (tuple, list)) or len(values) != len(wanted):
        raise UsageError(f"it takes {', '.join(wanted)}, so it must return these {len(wanted)} values or nothing.")
    moment.args.update(zip(wanted, values, strict=True))


def check_hook(owner: str, name: str, method: Callable[..., Any], events: set[str]) -> None:
    """Refuse a hook `on_<event>` of an unknown event, or one that does not take the moment."""
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
    """Refuse a callable that does not take the four arguments of a call after a batch."""
    try:
        inspect.signature(listener).bind(0, 0, {}, None)
    except TypeError:
        name = getattr(listener, "__name__", type(listener).__name__)
        raise UsageError(f"{name} must take epoch, step, performance_measures and context when it is called.") from None


def refuse_too_late(owner: str, event: str) -> None:
    """Refuse a listener of an event that is over when it is attached."""
    if event in _OVER:
        raise UsageError(
            f"{owner} would never be called: {event!r} is over when a callback is attached. Use 'attach' instead, or "
            f"list ('pre-init', function) as `callbacks` in the body of a trainer class of yours."
        )


def refuse_assigned(listener: Any, events: set[str]) -> None:
    """Refuse a function that was assigned to an object as `on_<event>`, because hooks are found in the class."""
    for name, value in vars(listener).items():
        event = name.removeprefix("on_")
        if name.startswith("on_") and event in events and callable(value):
            raise UsageError(
                f"`{name}` was assigned to a {type(listener).__name__}, where it is never called. "
                f"Write add_callback(({event!r}, function)), or define it in the class."
            )


def refuse_bound_otherwise(place: str, method: Any) -> None:
    """Refuse a hook that is not a method of the object, such as a `classmethod`: it would not be called."""
    if callable(method) or isinstance(method, (classmethod, functools.partialmethod)):
        raise UsageError(f"{place} would never be called: a hook is a plain method, and not a {type(method).__name__}.")


def refuse_methods_of_others(cls: type, events: set[str]) -> None:
    """Refuse methods of a callback that only other systems would call."""
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        taken = list(inspect.signature(method).parameters)[1:]
        is_event = name in events and name.endswith(("_start", "_end"))
        if name == "run_event":
            raise UsageError(f"{cls.__qualname__}.run_event would never be called: write `on_event(self, moment)`.")
        if is_event or taken == ["state", "logger"] or (name.startswith(("pre_", "post_")) and "callback" in name):
            event = meant_event(name.removesuffix("_callback"), events) or (name if is_event else None)
            remedy = f"write `on_{event}(self, moment)`" if event else "a hook is `on_<event>(self, moment)`"
            raise UsageError(f"{cls.__qualname__}.{name} would never be called: {remedy}.")

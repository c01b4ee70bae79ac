"""(event, function) pairs: a function heard at one event, which may take and replace arguments by their names.

("pre-loss", lambda trainer, batch: shifted(batch))           takes and replaces an argument of the stage
("post-loss", lambda trainer, return_value: 2 * return_value) replaces its result
("epoch_end", lambda moment: print(moment.context.epoch))     hears the moment itself
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sonosco_like.errors import UsageError
from sonosco_like.events.moment import Moment
from sonosco_like.events.near_names import STAGES_OF_OTHERS, near_event

Pair = tuple[str, Callable[..., Any]]
_PHASES = {"pre": "start", "post": "end"}


def check_pair(pair: Any, place: str) -> None:
    """Refuse what is no pair of a text and a callable."""
    is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str) and callable(pair[1])
    if not is_pair:
        raise UsageError(
            f"{place} holds (event, function) pairs, such as ('post-epoch', function), and not {pair!r}. "
            f"A callback object belongs in the `callbacks` that the constructor takes."
        )


def event_of_pair(pair: Pair, events: set[str]) -> str:
    """The event a pair names, as `batch_end`, `post-batch` or, by ArcticTraining's word, `post-step`.

    Raises UsageError if there is none of that name.
    """
    name = pair[0]
    before, mark, stage = name.partition("-")
    stage = stage.replace("-", "_")
    found = [name.replace("-", "_")]
    if mark and before in _PHASES:
        found = [f"{each}_{_PHASES[before]}" for each in (stage, STAGES_OF_OTHERS.get(stage, stage))]
    for event in found:
        if event in events:
            return event
    raise UsageError(f"There is no event {name!r} to attach a function to{near_event(found[0], events)}.")


def hook_of_pair(pair: Pair, event: str, stages: dict[str, list[str]]) -> Callable[[Moment], None]:
    """The function of a pair as a hook of the event. Raises UsageError if it takes what the stage does not have."""
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

"""(event, function) pairs: a function heard at one event, which may take and replace arguments by their names.

("pre-loss", lambda trainer, batch: shifted(batch))           takes and replaces an argument of the stage
("post-loss", lambda trainer, return_value: 2 * return_value) replaces its result
("epoch_end", lambda moment: print(moment.context.epoch))     hears the moment itself
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from sonosco_like.errors import UsageError, did_you_mean
from sonosco_like.events.moment import Moment

Pair = tuple[str, Callable[..., Any]]
_PHASE = re.compile(r"^(pre-|post-)|(_start|_end)$")


def event_of_pair(pair: Pair, events: set[str]) -> str:
    """The event a pair names, as `batch_end` or `post-batch`. Raises UsageError if there is none of that name."""
    name = pair[0]
    before, mark, stage = name.partition("-")
    event = f"{stage}_{'start' if before == 'pre' else 'end'}" if mark and before in ("pre", "post") else name
    event = event.replace("-", "_")
    if event not in events:
        raise UsageError(f"There is no event {name!r} to attach a function to{did_you_mean(event, events)}.")
    return event


def hook_of_pair(pair: Pair, stages: dict[str, list[str]]) -> Callable[[Moment], None]:
    """The function of a pair as a hook. Raises UsageError if it takes what the stage does not have."""
    event, function = pair
    names = list(inspect.signature(function).parameters)
    if names == ["moment"]:
        return function
    stage = _PHASE.sub("", event).replace("-", "_")
    unknown = [name for name in names[1:] if stage in stages and name not in stages[stage]]
    if unknown and names[1:] != ["return_value"]:
        known = ", ".join(stages[stage]) or "no arguments"
        raise UsageError(f"The function at {event!r} takes {unknown[0]!r}, but the stage {stage!r} has {known}.")

    def call(moment: Moment) -> None:
        wanted = names[1:]
        if wanted == ["return_value"]:
            moment.result = function(moment.context, moment.result)
            return
        missing = [name for name in wanted if name not in moment.args]
        if missing:
            known = ", ".join(moment.args) or "no arguments"
            raise UsageError(f"{moment.event} has no argument {missing[0]!r}; it has {known}.")
        returned = function(moment.context, *(moment.args[name] for name in wanted))
        if wanted and returned is not None:  # a function that returns nothing only looked
            values = returned if len(wanted) > 1 else (returned,)
            moment.args.update(zip(wanted, values, strict=True))

    return call

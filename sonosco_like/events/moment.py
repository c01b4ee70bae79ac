"""What a callback is told, and how it asks for an end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Scope = Literal["batch", "epoch", "training"]


@dataclass(slots=True)
class Moment:
    """One event: which, of whom, and what is about to happen or has happened.

    At the start of a stage `args` holds its arguments by name, and may be edited. At its end `result` holds what it
    returned, and may be replaced. `error` is the exception an `error` event is about, or the Stop that ended a stage.
    """

    event: str
    context: Any
    args: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: BaseException | None = None


class Stop(Exception):  # noqa: N818  (not an error: the end somebody wanted)
    """Raised by a callback to end the training, or only the epoch or the batch, once all have heard the event.

    Where no epoch is under way, as before the first one, there is nothing smaller to end: any scope ends the training.
    """

    def __init__(self, reason: str = "", scope: Scope = "training") -> None:
        if scope not in get_args(Scope):
            raise ValueError(f"The scope of a Stop is one of {', '.join(get_args(Scope))}, got {scope!r}.")
        super().__init__(reason)
        self.reason = reason
        self.scope = scope
        self.agreed = False  # whether all processes that train together know of it

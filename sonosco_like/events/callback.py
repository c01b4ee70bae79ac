"""The base class of callbacks, the `Moment` that their hooks get, and `Stop`, which ends a training."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from sonosco_like.events.context import TrainerContext

Scope = Literal["batch", "epoch", "training"]


@dataclass(slots=True)
class Moment:
    """One event: its name, the trainer it happens in, and what is about to happen or has happened.

    At the start of a stage `args` holds its arguments by name; a hook may edit them. At its end `result` holds what it
    returned; a hook may replace it. `error` is the exception an `error` event is about, or the Stop that ended a stage.
    """

    event: str
    context: TrainerContext
    args: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: BaseException | None = None


class Stop(Exception):  # noqa: N818  (not an error: an end that was asked for)
    """Raised by a callback to end the training, or only the epoch or the batch, once every callback heard the event.

    Outside an epoch there is nothing smaller to end: there any scope ends the training.
    """

    def __init__(self, reason: str = "", scope: Scope = "training") -> None:
        if scope not in get_args(Scope):
            raise ValueError(f"The scope of a Stop is one of {', '.join(get_args(Scope))}, got {scope!r}.")
        super().__init__(reason)
        self.reason = reason
        self.scope = scope
        self.agreed = False  # whether all processes that train together know of it


@dataclass(kw_only=True, eq=False)
class AbstractCallback(ABC):
    """Listens to a run. Decorate your own with `@serializable`, so that it is saved with the run.

    Override `__call__` to hear the end of every batch, `on_<event>(moment)` for any other event, or `on_event(moment)`
    for all. Callbacks hear an event in the order of their `order`, then of the list they are in. `ranks` are the
    processes of a distributed run in which it listens. `on_failure` says what an exception in it means: the end of the
    run (`raise`), a warning (`warn`), or a warning after which it is not called any more (`disable`).
    """

    order: int = 0
    ranks: list[int] | None = None
    on_failure: Literal["raise", "warn", "disable"] = "raise"

    def __call__(
        self, epoch: int, step: int, performance_measures: Mapping[str, float], context: TrainerContext
    ) -> None:
        """Called after every batch with the epoch, the batch in it (from 0), the running averages and the trainer."""

    def close(self) -> None:
        """Called once at the end of the run, also after an error, or when the callback is removed during the run."""

    def measures_needed(self) -> Iterable[str]:
        """The names of the measures that it reads. A measure that is not computed is refused when the run starts.

        `gradient_norm`, which costs time, is computed if a callback names it here, or does not override this method.
        """
        return ()

    def measures_given(self) -> Mapping[str, bool]:
        """The measures that it adds with `context.update_metric`: by name, whether lower is better."""
        return {}

    def texts_needed(self) -> Iterable[Literal["hypotheses", "teacher_forced"]]:
        """The texts that it reads at `prediction_end`; each text is decoded once for all callbacks."""
        return ()

    def epoch_limit(self) -> int | None:
        """The batches after which it ends every epoch; None if it does not shorten epochs."""
        return None

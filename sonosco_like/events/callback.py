"""What listens to a run."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(kw_only=True, eq=False)
class AbstractCallback(ABC):
    """Listens to a run. Decorate your own with `@serializable`, so that it is saved with the run.

    Override `__call__` to hear the end of every batch, `on_<event>(moment)` for any other event, or `on_event(moment)`
    for all. Callbacks hear an event in the order of their `order`, then of the list they are in. `ranks` are the
    processes of a distributed run in which it listens. `on_failure` says what an exception in it means: the end of the
    run, a warning, or a warning and its own end.
    """

    order: int = 0
    ranks: list[int] | None = None
    on_failure: Literal["raise", "warn", "disable"] = "raise"

    def __call__(self, epoch: int, step: int, performance_measures: Mapping[str, float], context: Any) -> None:
        """After every batch: the epoch, the batch in it (from 0), running averages, and the trainer."""

    def close(self) -> None:
        """At the end of the run, always and once, also after an error; of one that is removed in mid run, then."""

    def measures_needed(self) -> Iterable[str]:
        """Names of the measures it reads; one that nobody computes is refused when the run starts."""
        return ()

    def measures_given(self) -> Mapping[str, bool]:
        """The measures it puts beside the others with `context.update_metric`: by name, whether lower is better."""
        return {}

    def texts_needed(self) -> Iterable[Literal["hypotheses", "teacher_forced"]]:
        """Which texts it reads at `prediction_end`; each is decoded once for all who want it."""
        return ()

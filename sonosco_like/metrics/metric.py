"""What a metric is: a function of one judged batch that returns sums, and says which way is up.

    @metric(lower_is_better=True, over="reference words", needs=("hypotheses",))
    def word_error_rate(judged: Judged) -> Sums: ...

The direction is declared, never guessed from a name, and so is what the metric must see: free decoding costs far more
than the forward pass, so it is done only for a metric that asks for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from sonosco_like.errors import UsageError
from sonosco_like.metrics.running import Sums
from sonosco_like.records import Batch, Hypothesis, Output
from sonosco_like.serialization import serializable

Need = Literal["hypotheses", "teacher_forced"]
F = TypeVar("F")
_ATTRIBUTE = "metric_description"


@dataclass(frozen=True, slots=True)
class Judged:
    """A batch, what the model made of it, and the texts that were read from that, as far as they were asked for."""

    batch: Batch
    output: Output
    hypothesis_texts: Sequence[str] | None = None
    teacher_forced_texts: Sequence[str] | None = None
    readings: Sequence[Hypothesis] | None = None  # behind the hypotheses: tokens with their times and scores

    @property
    def references(self) -> Sequence[str]:
        """What was said."""
        return self.batch.texts

    @property
    def hypotheses(self) -> Sequence[str]:
        """What a decoder heard on its own, without having seen the reference."""
        return _asked_for(self.hypothesis_texts, "hypotheses")

    @property
    def teacher_forced(self) -> Sequence[str]:
        """What the attention decoder writes when each of its steps is told the right beginning: not a recognition."""
        return _asked_for(self.teacher_forced_texts, "teacher_forced")


Metric: TypeAlias = Callable[[Judged], Sums]


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """What is known of a metric before it is computed.

    `over` says what the average is taken over: all of those in an epoch weigh the same, whatever batch or process they
    were in.
    """

    name: str
    lower_is_better: bool
    over: str
    needs: frozenset[Need] = frozenset()


def metric(*, lower_is_better: bool, over: str, needs: Iterable[Need] = ()) -> Callable[[F], F]:
    """Register a function (or a class of callable objects) as a metric that configs can name."""

    def declare(target: F) -> F:
        name = target.__name__  # type: ignore[attr-defined]
        setattr(target, _ATTRIBUTE, MetricDescription(name, lower_is_better, over, frozenset(needs)))
        return serializable(target)

    return declare


def describe(target: Any) -> MetricDescription:
    """The description of a metric, also of one with some of its arguments given."""
    while isinstance(target, functools.partial):
        target = target.func
    description = getattr(target, _ATTRIBUTE, None)
    if not isinstance(description, MetricDescription):
        name = getattr(target, "__name__", type(target).__name__)
        raise UsageError(
            f"`{name}` is not a metric: nobody said whether a lower value of it is better. "
            f"Decorate it with @metric(lower_is_better=..., over=...)."
        )
    return description


def needs_of(metrics: Iterable[Metric]) -> frozenset[Need]:
    """What has to be decoded so that all these metrics can be computed."""
    return frozenset(need for each in metrics for need in describe(each).needs)


def measure(metrics: Iterable[Metric], judged: Judged) -> dict[str, Sums]:
    """The sums of every metric on one batch, by name."""
    return {describe(each).name: each(judged) for each in metrics}


def _asked_for(texts: Sequence[str] | None, need: Need) -> Sequence[str]:
    if texts is None:
        raise UsageError(
            f"A metric reads `{need}`, but nothing was decoded for it. "
            f"Declare it where the metric is defined: @metric(..., needs=({need!r},))."
        )
    return texts

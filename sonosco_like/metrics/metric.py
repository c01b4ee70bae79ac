"""What a metric is: a function of one judged batch that returns sums, and says which way is up.

    @metric(lower_is_better=True, over="reference words", needs=("hypotheses",))
    def word_error_rate(judged: Judged) -> Sums: ...

The direction is declared, never guessed from a name, and so is what the metric must see: free decoding costs far more
than the forward pass, so it is done only for a metric that asks for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, TypeAlias, TypeVar

from torch import Tensor

from sonosco_like.errors import UsageError
from sonosco_like.metrics.examples import examples_in, rows_of, targets_in
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
    predicted: Any = None  # what an overridden `predict_batch` made of the output

    @property
    def predictions(self) -> Any:
        """What `predict_batch` made of the output of any model; the output itself, if nobody overrides it."""
        return self.output if self.predicted is None else self.predicted

    @property
    def examples(self) -> tuple[list[Any], list[Any]]:
        """The predictions one by one, and their targets; a batch that cannot be divided is one example."""
        count = examples_in(self.batch)
        made, targets = rows_of(self.predictions, count), rows_of(targets_in(self.batch), count)
        return ([self.predictions], [targets_in(self.batch)]) if made is None else (made, targets or [None] * count)

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


Metric: TypeAlias = Callable[[Judged], Sums | Tensor | float]


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
    """Register a function, or a class whose objects are called, as a metric that configs can name.

    The measure has the name of the function or class; an object with a text `name` has that one. A metric returns
    `Sums`, or a plain number, which is taken for the mean over the examples of the batch.
    """

    def declare(target: F) -> F:
        registered = serializable(target)
        name = target.__name__  # type: ignore[attr-defined]
        setattr(registered, _ATTRIBUTE, MetricDescription(name, lower_is_better, over, frozenset(needs)))
        return registered

    return declare


def describe(target: Any) -> MetricDescription:
    """The description of a metric, also of one with some of its arguments given."""
    while isinstance(target, functools.partial):
        target = target.func
    description = getattr(target, _ATTRIBUTE, None)
    if isinstance(target, type) and description is not None:
        raise UsageError(
            f"`{target.__name__}` is the class of a metric; give the trainer an object: {target.__name__}()."
        )
    own = getattr(target, "name", None)
    if isinstance(description, MetricDescription) and isinstance(own, str):
        return replace(description, name=own)
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
    found = {}
    for each in metrics:
        name, returned = describe(each).name, each(judged)
        found[name] = returned if type(returned) is Sums else _as_sums(name, returned, judged)
    return found


def _as_sums(name: str, returned: Any, judged: Judged) -> Sums:
    """A plain number as the mean over the examples of a batch."""
    is_number = isinstance(returned, Real) or (isinstance(returned, Tensor) and returned.numel() == 1)
    if not is_number:
        came = (
            f"a tensor of {tuple(returned.shape)}" if isinstance(returned, Tensor) else f"a {type(returned).__name__}"
        )
        raise UsageError(
            f"The metric `{name}` returned {came}. A metric returns Sums(total, weight), or a number, which is taken "
            f"for the mean over the examples of the batch."
        )
    mean = returned.detach().reshape(()) if isinstance(returned, Tensor) else float(returned)
    return Sums.of_mean(mean, float(examples_in(judged.batch)))


def _asked_for(texts: Sequence[str] | None, need: Need) -> Sequence[str]:
    if texts is None:
        raise UsageError(
            f"A metric reads `{need}`, but nothing was decoded for it. "
            f"Declare it where the metric is defined: @metric(..., needs=({need!r},))."
        )
    return texts

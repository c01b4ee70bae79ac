"""A metric is a function of one decoded batch that returns sums, and declares whether lower values are better.

    @metric(lower_is_better=True, over="reference words", needs=("hypotheses",))
    def word_error_rate(decoded: DecodedBatch) -> Sums: ...

The direction is declared, never guessed from a name. The metric also declares which texts it needs: free decoding costs
far more than the forward pass, so it is done only for metrics that need it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, TypeAlias, TypeVar

from torch import Tensor

from sonosco_like.errors import UsageError
from sonosco_like.metrics.running import Sums
from sonosco_like.records import Batch, Hypothesis, Output
from sonosco_like.serialization import serializable

Need = Literal["hypotheses", "teacher_forced"]
F = TypeVar("F")
_ATTRIBUTE = "metric_description"


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """A batch, the output of the model, and the decoded texts, as far as a metric or a callback needs them."""

    batch: Batch
    output: Output
    hypothesis_texts: Sequence[str] | None = None
    teacher_forced_texts: Sequence[str] | None = None
    hypotheses_with_times: Sequence[Hypothesis] | None = None  # the same texts with scores, tokens and words
    predicted: Any = None  # the result of an overridden `predict_batch`

    @property
    def predictions(self) -> Any:
        """The result of an overridden `predict_batch`; the output itself, if it is not overridden."""
        return self.output if self.predicted is None else self.predicted

    @property
    def examples(self) -> tuple[list[Any], list[Any]]:
        """The predictions of each example and their targets; a batch that cannot be divided is one example."""
        count = examples_in(self.batch)
        made, targets = rows_of(self.predictions, count), rows_of(targets_in(self.batch), count)
        return ([self.predictions], [targets_in(self.batch)]) if made is None else (made, targets or [None] * count)

    @property
    def references(self) -> Sequence[str]:
        """The reference texts."""
        return self.batch.texts

    @property
    def hypotheses(self) -> Sequence[str]:
        """The texts that the decoder found without seeing the references."""
        return _require_decoded(self.hypothesis_texts, "hypotheses")

    @property
    def teacher_forced(self) -> Sequence[str]:
        """The texts of the attention decoder if each step is given the reference so far; this is not recognition."""
        return _require_decoded(self.teacher_forced_texts, "teacher_forced")


Metric: TypeAlias = Callable[[DecodedBatch], Sums | Tensor | float]


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """What a metric declares.

    `over` names what the average is taken over: each of those has the same weight in an epoch, whatever its batch or
    process.
    """

    name: str
    lower_is_better: bool
    over: str
    needs: frozenset[Need] = frozenset()


def metric(*, lower_is_better: bool, over: str, needs: Iterable[Need] = ()) -> Callable[[F], F]:
    """Register a function, or a class whose objects are called, as a metric that configs can name.

    The measure has the name of the function or class, or of the object's text attribute `name`. A metric returns
    `Sums`, or a plain number, which counts as the mean over the examples of the batch.
    """

    def declare(target: F) -> F:
        registered = serializable(target)
        name = target.__name__  # type: ignore[attr-defined]
        setattr(registered, _ATTRIBUTE, MetricDescription(name, lower_is_better, over, frozenset(needs)))
        return registered

    return declare


def description_of(target: Any) -> MetricDescription:
    """The description of a metric, also of a `functools.partial` of one."""
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
            f"`{name}` is not a metric: it does not declare whether lower values are better. "
            f"Decorate it with @metric(lower_is_better=..., over=...)."
        )
    return description


def needs_of(metrics: Iterable[Metric]) -> frozenset[Need]:
    """The texts that must be decoded for these metrics."""
    return frozenset(need for each in metrics for need in description_of(each).needs)


def measure(metrics: Iterable[Metric], decoded: DecodedBatch) -> dict[str, Sums]:
    """The sums of every metric on one batch, by name."""
    found = {}
    for each in metrics:
        name, returned = description_of(each).name, each(decoded)
        found[name] = returned if type(returned) is Sums else _as_sums(name, returned, decoded)
    return found


def _as_sums(name: str, returned: Any, decoded: DecodedBatch) -> Sums:
    """The sums of a plain number, which is the mean over the examples of a batch."""
    is_number = isinstance(returned, Real) or (isinstance(returned, Tensor) and returned.numel() == 1)
    if not is_number:
        came = (
            f"a tensor of {tuple(returned.shape)}" if isinstance(returned, Tensor) else f"a {type(returned).__name__}"
        )
        raise UsageError(
            f"The metric `{name}` returned {came}. A metric returns Sums(total, weight), or a number, which counts as "
            f"the mean over the examples of the batch."
        )
    mean = returned.detach().reshape(()) if isinstance(returned, Tensor) else float(returned)
    return Sums.of_mean(mean, float(examples_in(decoded.batch)))


def _require_decoded(texts: Sequence[str] | None, need: Need) -> Sequence[str]:
    if texts is None:
        raise UsageError(
            f"A metric reads `{need}`, but nothing was decoded for it. "
            f"Declare it where the metric is defined: @metric(..., needs=({need!r},))."
        )
    return texts


def examples_in(batch: Any) -> int:
    """The number of examples in a batch: the length of its first tensor, or of the batch if it has none."""
    first = _first_tensor(batch)
    if first is not None:
        return len(first) if first.dim() else 1
    return len(batch) if hasattr(batch, "__len__") and not isinstance(batch, (list, tuple, Mapping)) else 1


def targets_in(batch: Any) -> Any:
    """The targets of a batch: the last of its parts, or the batch itself."""
    return batch[-1] if isinstance(batch, (list, tuple)) and batch else batch


def rows_of(value: Any, count: int) -> list[Any] | None:
    """The parts of `value` that belong to each of `count` examples, on the CPU; None if it cannot be divided so."""
    if isinstance(value, Tensor):
        return list(value.detach().cpu()) if value.dim() and len(value) == count else None
    if isinstance(value, Mapping):
        parts = {key: rows_of(part, count) for key, part in value.items()}
        if not parts or any(part is None for part in parts.values()):
            return None
        return [{key: part[row] for key, part in parts.items() if part is not None} for row in range(count)]
    if isinstance(value, (list, tuple)):
        columns = [rows_of(part, count) for part in value]
        if value and all(column is not None for column in columns):
            return [tuple(column[row] for column in columns if column is not None) for row in range(count)]
        return list(value) if len(value) == count else None
    return None


def _first_tensor(part: Any) -> Tensor | None:
    if isinstance(part, Tensor):
        return part
    parts = part.values() if isinstance(part, Mapping) else part if isinstance(part, (list, tuple)) else ()
    return next((found for each in parts if (found := _first_tensor(each)) is not None), None)

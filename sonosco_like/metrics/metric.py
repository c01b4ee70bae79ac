"""A metric is a function of one decoded batch that returns sums, and declares whether lower values are better.

    @metric(lower_is_better=True, over="reference words", needs=("hypotheses",))
    def word_error_rate(decoded: DecodedBatch) -> Sums: ...

The sums are added up, so that a running average is at every moment exactly the average over all batches so far. The
direction is declared, never guessed from a name. The metric also declares which texts it needs: free decoding costs far
more than the forward pass, so it is done only for metrics that need it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from sonosco_like.errors import UsageError
from sonosco_like.records import Batch, Hypothesis, Output
from sonosco_like.serialization import serializable

Number: TypeAlias = "Tensor | float"
_TOTAL, _WEIGHT = "total", "weight"


@dataclass(frozen=True, slots=True)
class Sums:
    """An average before its division, so that it can be added up over batches, processes and epochs.

    `total / weight` is the average; `parts` are further totals, such as the substitutions among the errors. Each is a
    number or a 0-dimensional tensor, which stays on its device.
    """

    total: Number
    weight: Number
    parts: Mapping[str, Number] = field(default_factory=dict)

    @classmethod
    def of_mean(cls, mean: Number, weight: Number) -> Sums:
        """The sums of an average that was already divided by its weight, such as a loss."""
        return cls(_widen(mean) * _widen(weight), weight)

    @property
    def value(self) -> float:
        """The average; without any weight it is the total, as `ErrorCounts.rate` explains."""
        return float(_widen(self.total)) / (float(_widen(self.weight)) or 1.0)

    def flat(self) -> dict[str, Number]:
        """Every sum by its name."""
        return {_TOTAL: self.total, _WEIGHT: self.weight, **self.parts}


class RunningMeasures(Mapping[str, float]):
    """Averages by name: sums on the device while they grow, plain numbers when they are read.

    Reading copies all sums to the host at once, and waits for the device; adding never does.
    """

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, Number]] = {}
        self._read: dict[str, dict[str, float]] | None = None

    def add(self, name: str, sums: Sums) -> None:
        """Add a batch to an average."""
        new = {part: _widen(value) for part, value in sums.flat().items()}
        old = self._sums.setdefault(name, dict.fromkeys(new, 0.0))
        if old.keys() != new.keys():
            raise UsageError(
                f"The sums of `{name}` were {', '.join(old)} until now, and are {', '.join(new)} in this batch. "
                f"A metric must always return the same parts."
            )
        self._sums[name] = {part: old[part] + new[part] for part in old}
        self._read = None

    def add_mean(self, name: str, mean: Number, weight: Number) -> None:
        """Add a batch to an average, given its own average and the weight of that."""
        old = self._sums.get(name)
        if old is None or len(old) > 2:
            self.add(name, Sums.of_mean(mean, weight))
            return
        if type(mean) is not float or type(weight) is not float:  # the same sums as in `add`, but quicker: this is
            mean, weight = _widen(mean), _widen(weight)  # called in every step
        self._sums[name] = {_TOTAL: old[_TOTAL] + mean * weight, _WEIGHT: old[_WEIGHT] + weight}
        self._read = None

    def merge(self, other: RunningMeasures) -> None:
        """Add the sums of another process, or of another part of the epoch."""
        for name, sums in other._sums.items():
            self.add(name, _as_sums(sums))

    def all_reduce(self, reduce: Callable[[Tensor], object], device: torch.device | str = "cpu") -> None:
        """Sum over all processes with one call of `reduce`, which sums a tensor in place over them.

        `torch.distributed.all_reduce` is such a function; every process must have added the same names.
        """
        places = [(name, part) for name in sorted(self._sums) for part in sorted(self._sums[name])]
        sums = torch.tensor([float(self._sums[name][part]) for name, part in places], dtype=torch.float64)
        sums = sums.to(device, _widest_type(torch.device(device)))
        reduce(sums)
        for (name, part), value in zip(places, sums.tolist(), strict=True):
            self._sums[name][part] = value
        self._read = None

    def remember_state(self) -> Callable[[], None]:
        """A function that restores the current sums; neither this call nor the function waits for the device."""
        sums = dict(self._sums)  # adding replaces its values

        def restore() -> None:
            self._sums, self._read = dict(sums), None

        return restore

    def parts(self, name: str) -> dict[str, float]:
        """The further totals of a measure, such as its substitutions, deletions and insertions."""
        return {part: value for part, value in self._numbers()[name].items() if part not in (_TOTAL, _WEIGHT)}

    def weight(self, name: str) -> float:
        """The weight of an average so far: the number of words, tokens or utterances."""
        return self._numbers()[name][_WEIGHT]

    def clear(self) -> None:
        """Forget everything, as at the start of an epoch."""
        self._sums, self._read = {}, None

    def __getitem__(self, name: str) -> float:
        return _as_sums(self._numbers()[name]).value

    def __iter__(self) -> Iterator[str]:
        return iter(self._sums)

    def __len__(self) -> int:
        return len(self._sums)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value:.6g}' for name, value in self.items())})"

    def state_dict(self) -> dict[str, dict[str, float]]:
        """The sums as numbers."""
        return {name: dict(sums) for name, sums in self._numbers().items()}

    def load_state_dict(self, state: Mapping[str, Mapping[str, float]]) -> None:
        """Continue from sums that were saved."""
        self._sums, self._read = {name: dict(sums) for name, sums in state.items()}, None

    def _numbers(self) -> dict[str, dict[str, float]]:
        """All sums on the host, copied together and kept until the next batch."""
        if self._read is None:
            tensors = [value for sums in self._sums.values() for value in sums.values() if isinstance(value, Tensor)]
            numbers = iter(torch.stack(_on_one_device(tensors)).tolist() if tensors else [])
            self._read = {
                name: {part: next(numbers) if isinstance(value, Tensor) else value for part, value in sums.items()}
                for name, sums in self._sums.items()
            }
        return self._read


def _as_sums(flat: Mapping[str, Number]) -> Sums:
    parts = {name: value for name, value in flat.items() if name not in (_TOTAL, _WEIGHT)}
    return Sums(flat[_TOTAL], flat[_WEIGHT], parts)


def _widen(value: Number) -> Number:
    """The value in a precision for sums over millions of batches, detached from its graph."""
    return value.detach().to(_widest_type(value.device)) if isinstance(value, Tensor) else value


def _widest_type(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


def _on_one_device(tensors: list[Tensor]) -> list[Tensor]:
    devices = {tensor.device for tensor in tensors}
    return tensors if len(devices) == 1 else [tensor.cpu() for tensor in tensors]


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
        sums = returned if isinstance(returned, Sums) else _sums_of_mean(name, returned, decoded)
        found[name] = _check_sums(name, sums)
    return found


def _check_sums(name: str, sums: Sums) -> Sums:
    """The sums, if each of them is one number; adding them up would fail later, without the name of the metric."""
    values = sums.flat() if isinstance(sums.parts, Mapping) else {"parts": sums.parts}
    for part, value in values.items():
        is_number = value.dim() == 0 if isinstance(value, Tensor) else isinstance(value, (int, float, Real))
        if not is_number:
            raise UsageError(
                f"The metric `{name}` returned Sums whose `{part}` is {_kind(value)}. The total, the weight and each "
                f"of the parts are one number, or a tensor without dimensions, such as `errors.sum()`."
            )
    return sums


def _kind(value: Any) -> str:
    return f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _sums_of_mean(name: str, returned: Any, decoded: DecodedBatch) -> Sums:
    """The sums of a plain number, which is the mean over the examples of a batch."""
    is_number = isinstance(returned, Real) or (isinstance(returned, Tensor) and returned.numel() == 1)
    if not is_number:
        raise UsageError(
            f"The metric `{name}` returned {_kind(returned)}. A metric returns Sums(total, weight), or a number, which "
            f"counts as the mean over the examples of the batch."
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

"""Running averages, which at every moment are exactly the averages over all batches so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from sonosco_like.errors import UsageError

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

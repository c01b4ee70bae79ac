"""Lengths of training as people write them: `10ep`, `2000ba`, `90min`, `0.5dur`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sonosco_like.errors import UsageError

Unit = Literal["ep", "ba", "s", "dur"]
_SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
ROUNDING = 1e-9  # 0.3 of a training is three times 0.1 of it
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


@dataclass(frozen=True, slots=True)
class Duration:
    """So many epochs, batches or seconds, or a share of the whole training."""

    value: float
    unit: Unit

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Read a duration. Raises UsageError with the forms there are."""
        match = _FORM.fullmatch(text)
        value, unit = (float(match[1]), match[2]) if match else (0.0, "")
        if unit in _SECONDS and value > 0:
            return cls(value * _SECONDS[unit], "s")
        whole = unit not in ("ep", "ba") or value == int(value)
        if unit not in ("ep", "ba", "dur") or not whole or value <= 0 or (unit == "dur" and value > 1):
            raise UsageError(
                f"{text!r} is not a duration. Write epochs (10ep), batches (2000ba), time (90min, 1.5h, 30s) or a "
                f"share of the training (0.5dur)."
            )
        return cls(value, unit)  # type: ignore[arg-type]

    def reached(self, epochs: int, batches: int, seconds: float, share: float = 0.0) -> bool:
        """Whether a training that has come so far has lasted this long."""
        if self.unit == "dur":
            return share >= self.value - ROUNDING
        return {"ep": epochs, "ba": batches, "s": seconds}[self.unit] >= self.value

    def __str__(self) -> str:
        return f"{self.value:.15g}{self.unit}"  # more digits than `g` alone: 2000000ba, not 2e+06ba

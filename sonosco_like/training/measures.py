"""What callbacks read: the running averages of training and the results of the last validation, as one mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sonosco_like.metrics import RunningMeasures

VALIDATION = "val_"


class PerformanceMeasures(Mapping[str, float]):
    """`loss`, `gradient_norm`, `<metric>` of this epoch so far; `val_loss`, `val_<metric>` of the last validation.

    Numbers are computed when they are read. Reading waits for the device; not reading never does.
    """

    def __init__(self) -> None:
        self.training = RunningMeasures()
        self.validation = RunningMeasures()

    def replace_validation(self, found: RunningMeasures) -> None:
        """Take the results of a new validation instead of the last one's."""
        self.validation = found

    def __getitem__(self, name: str) -> float:
        if name.startswith(VALIDATION):
            return self.validation[name.removeprefix(VALIDATION)]
        return self.training[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.training
        yield from (VALIDATION + name for name in self.validation)

    def __len__(self) -> int:
        return len(self.training) + len(self.validation)

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name}: {value:.6g}' for name, value in self.items())}}}"

    def state_dict(self) -> dict[str, Any]:
        """The sums behind both."""
        return {"training": self.training.state_dict(), "validation": self.validation.state_dict()}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue from sums that were saved."""
        self.training.load_state_dict(content["training"])
        self.validation.load_state_dict(content["validation"])

"""A loader that keeps its place, as ours do; what its batches are is up to those who inherit from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from sonosco_like import serializable


@serializable
class PlacedBatches(ABC):
    """Batches that are a pure function of (epoch, position)."""

    batches: int = 5

    def __post_init__(self) -> None:
        self.epoch = self.position = 0

    @abstractmethod
    def batch(self, epoch: int, position: int) -> Any:
        """The batch at a place."""

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch."""
        if epoch != self.epoch:
            self.epoch, self.position = epoch, 0

    def seek(self, position: int) -> None:
        """Go to a batch."""
        self.position = position

    def state_dict(self) -> dict[str, int]:
        """The place."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, content: dict[str, int]) -> None:
        """Go to a place."""
        self.epoch, self.position = content["epoch"], content["position"]

    def __iter__(self) -> Iterator[Any]:
        for position in range(self.position, self.batches):
            self.position = position + 1
            yield self.batch(self.epoch, position)
        self.position = 0

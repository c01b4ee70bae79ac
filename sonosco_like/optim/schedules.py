"""Learning-rate schedules that speech recipes use and torch does not have: a warm-up, then one of several ends.

Each is a factor of the learning rate as a pure function of the step, so that resuming needs nothing but the step.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Literal

import torch

from sonosco_like.errors import UsageError
from sonosco_like.optim.schedulers import Scheduler
from sonosco_like.serialization import serializable

Shape = Literal["linear", "cosine", "exponential"]


@serializable
class Schedule(Scheduler):
    """A schedule given by a formula."""

    @abstractmethod
    def factor(self, step: int) -> float:
        """What the learning rate is multiplied by in the optimizer's step of this number, from 0."""

    def build(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        """The scheduler for this optimizer."""
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.factor(step))


@serializable
class WarmupHoldDecay(Schedule):
    """Up in `warmup` steps, held until `hold`, then down to `final` of the learning rate at step `total`.

    With `hold` at the end of the warm-up it is the common warm-up and decay; held for long it is warmup-stable-decay
    (Hu et al. 2024); with an exponential shape it is the schedule of SpecAugment (Park et al. 2019).
    """

    total: int
    warmup: int = 100
    hold: int = 0
    final: float = 0.01
    shape: Shape = "linear"

    def __post_init__(self) -> None:
        if self.warmup < 0 or self.total <= max(self.warmup, self.hold):
            raise UsageError(
                f"WarmupHoldDecay: `total` must be more than `warmup` and `hold`, and `warmup` not negative, "
                f"got {self.total}, {self.warmup} and {self.hold}."
            )
        if not 0 < self.final <= 1:
            raise UsageError(f"`final` is a share of the learning rate, above 0 and at most 1; got {self.final}.")

    def factor(self, step: int) -> float:
        """Linear up, level, and down in the chosen shape."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        begin = max(self.warmup, self.hold)
        share = min(1.0, max(0.0, (step - begin) / (self.total - begin)))
        if self.shape == "exponential":
            return float(self.final**share)
        down = share if self.shape == "linear" else (1.0 - math.cos(math.pi * share)) / 2.0
        return 1.0 - (1.0 - self.final) * down


@serializable
class Noam(Schedule):
    """Up in `warmup` steps, then with one over the square root of the step (Vaswani et al. 2017); 1 at its peak."""

    warmup: int = 4000

    def __post_init__(self) -> None:
        if self.warmup < 1:
            raise UsageError(f"`warmup` must be at least 1, got {self.warmup}.")

    def factor(self, step: int) -> float:
        """The smaller of the rise and the fall."""
        return min((step + 1) / self.warmup, math.sqrt(self.warmup / (step + 1)))

"""Learning-rate schedules by name: the settings that a config gives, before there is an optimizer.

Most are torch's schedulers, with torch's fields and defaults (a test compares them) except `last_epoch`, which is
state. Torch's `ReduceLROnPlateau` follows a measure and is a callback here. At the end of the file are two schedules
of speech recipes that torch does not have; each is a pure function of the step, so a resume needs only the step.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import torch

from sonosco_like.errors import UsageError
from sonosco_like.optim.optimizers import torch_errors_as_usage_errors
from sonosco_like.serialization import serializable

Shape = Literal["linear", "cosine", "exponential"]


@serializable
class Scheduler(ABC):
    """The settings of a schedule; `build(optimizer)` makes the torch scheduler of the same name."""

    def build(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        """Make the scheduler for this optimizer. Raises UsageError for a value that torch refuses."""
        name = type(self).__name__
        arguments, settings = self._positional_arguments(optimizer), self._settings(optimizer)
        with torch_errors_as_usage_errors(f"The scheduler {name}"):
            scheduler: torch.optim.lr_scheduler.LRScheduler = getattr(torch.optim.lr_scheduler, name)(
                *arguments, **settings
            )
        return scheduler

    def _positional_arguments(self, optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
        return (optimizer,)

    def _settings(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@serializable
class StepLR(Scheduler):
    """Multiplies the rate by `gamma` every `step_size` steps."""

    step_size: int
    gamma: float = 0.1


@serializable
class MultiStepLR(Scheduler):
    """Multiplies the rate by `gamma` at each milestone."""

    milestones: list[int]
    gamma: float = 0.1


@serializable
class ExponentialLR(Scheduler):
    """Multiplies the rate by `gamma` every step."""

    gamma: float


@serializable
class ConstantLR(Scheduler):
    """Multiplies the rate by `factor` for the first `total_iters` steps."""

    factor: float = 1.0 / 3
    total_iters: int = 5


@serializable
class LinearLR(Scheduler):
    """Changes the rate from `start_factor` to `end_factor` in `total_iters` steps: a warm-up, or a decay."""

    start_factor: float = 1.0 / 3
    end_factor: float = 1.0
    total_iters: int = 5


@serializable
class PolynomialLR(Scheduler):
    """Lowers the rate to zero in `total_iters` steps along a polynomial."""

    total_iters: int = 5
    power: float = 1.0


@serializable
class CosineAnnealingLR(Scheduler):
    """Lowers the rate to `eta_min` in `T_max` steps along a cosine."""

    T_max: int
    eta_min: float = 0.0


@serializable
class CosineAnnealingWarmRestarts(Scheduler):
    """A cosine decay that restarts after `T_0` steps; each cycle is `T_mult` times longer than the last."""

    T_0: int
    T_mult: int = 1
    eta_min: float = 0.0


@serializable
class CyclicLR(Scheduler):
    """Moves the rate up and down between `base_lr` and `max_lr`."""

    base_lr: float
    max_lr: float
    step_size_up: int = 2000
    step_size_down: int | None = None
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    gamma: float = 1.0
    scale_fn: Callable[[float], float] | None = None
    scale_mode: Literal["cycle", "iterations"] = "cycle"
    cycle_momentum: bool = True
    base_momentum: float = 0.8
    max_momentum: float = 0.9

    def _settings(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        rates = {name: _for_each_group(getattr(self, name), optimizer) for name in ("base_lr", "max_lr")}
        return {**super()._settings(optimizer), **rates}


@serializable
class OneCycleLR(Scheduler):
    """One rise and one long fall of the rate (Smith and Topin 2017)."""

    max_lr: float
    total_steps: int | None = None
    epochs: int | None = None
    steps_per_epoch: int | None = None
    pct_start: float = 0.3
    anneal_strategy: Literal["cos", "linear"] = "cos"
    cycle_momentum: bool = True
    base_momentum: float = 0.85
    max_momentum: float = 0.95
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    three_phase: bool = False

    def _settings(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {**super()._settings(optimizer), "max_lr": _for_each_group(self.max_lr, optimizer)}


@serializable
class LambdaLR(Scheduler):
    """Multiplies the first rate by what a registered function returns for the step."""

    lr_lambda: Callable[[int], float]


@serializable
class MultiplicativeLR(Scheduler):
    """Multiplies the last rate, at every step, by what a registered function returns for the step."""

    lr_lambda: Callable[[int], float]


@serializable
class SequentialLR(Scheduler):
    """One schedule after the other; the milestones are the steps at which the next one begins."""

    schedulers: list[Scheduler]
    milestones: list[int]

    def __post_init__(self) -> None:
        if len(self.milestones) != len(self.schedulers) - 1:
            raise UsageError(
                f"SequentialLR needs a milestone between each two schedulers: {len(self.schedulers) - 1} for "
                f"{len(self.schedulers)} schedulers, got {len(self.milestones)}."
            )

    def _settings(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {"schedulers": [part.build(optimizer) for part in self.schedulers], "milestones": self.milestones}


@serializable
class ChainedScheduler(Scheduler):
    """Several schedules at once; their factors are multiplied."""

    schedulers: list[Scheduler]

    def _positional_arguments(self, optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
        return ([part.build(optimizer) for part in self.schedulers],)

    def _settings(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {"optimizer": optimizer}


@serializable
class Schedule(Scheduler):
    """A schedule that is given by a formula."""

    @abstractmethod
    def factor(self, step: int) -> float:
        """The factor of the learning rate at this step of the optimizer, from 0."""

    def build(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.factor(step))


@serializable
class WarmupHoldDecay(Schedule):
    """Rises in `warmup` steps, stays level until step `hold`, then falls to the share `final` at step `total`.

    With a short `hold` it is the common warm-up and decay; with a long one it is warmup-stable-decay (Hu et al. 2024);
    with an exponential shape it is the schedule of SpecAugment (Park et al. 2019).
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
    """Rises to 1 in `warmup` steps, then falls as one over the square root of the step (Vaswani et al. 2017)."""

    warmup: int = 4000

    def __post_init__(self) -> None:
        if self.warmup < 1:
            raise UsageError(f"`warmup` must be at least 1, got {self.warmup}.")

    def factor(self, step: int) -> float:
        return min((step + 1) / self.warmup, math.sqrt(self.warmup / (step + 1)))


def _for_each_group(rate: float, optimizer: torch.optim.Optimizer) -> list[float]:
    """The rate of each parameter group if `rate` replaces that of the optimizer; the proportions of the groups stay."""
    own = float(optimizer.defaults["lr"])
    return [rate * (float(group["lr"]) / own if own else 1.0) for group in optimizer.param_groups]

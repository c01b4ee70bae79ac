"""Torch's learning-rate schedulers by name: what a config says of them, before there is an optimizer.

Fields and defaults are torch's own (a test compares them), less `last_epoch`, which is state and not configuration.
Torch's `ReduceLROnPlateau` follows a measure and is a callback here.
"""

from __future__ import annotations

import dataclasses
from abc import ABC
from collections.abc import Callable
from typing import Any, Literal

import torch

from sonosco_like.errors import UsageError
from sonosco_like.optim.refusals import refusals_explained
from sonosco_like.serialization import serializable


@serializable
class Scheduler(ABC):
    """A schedule to be: `build(optimizer)` makes the torch scheduler of the same name."""

    def build(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        """The scheduler for this optimizer. Raises UsageError for a value that torch refuses."""
        name = type(self).__name__
        first, settings = self._first(optimizer), self._settings(optimizer)
        with refusals_explained(f"The scheduler {name}"):
            made: torch.optim.lr_scheduler.LRScheduler = getattr(torch.optim.lr_scheduler, name)(*first, **settings)
        return made

    def _first(self, optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
        return (optimizer,)

    def _settings(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@serializable
class StepLR(Scheduler):
    """Times `gamma` every `step_size` steps."""

    step_size: int
    gamma: float = 0.1


@serializable
class MultiStepLR(Scheduler):
    """Times `gamma` at each milestone."""

    milestones: list[int]
    gamma: float = 0.1


@serializable
class ExponentialLR(Scheduler):
    """Times `gamma` every step."""

    gamma: float


@serializable
class ConstantLR(Scheduler):
    """Times `factor` for the first `total_iters` steps."""

    factor: float = 1.0 / 3
    total_iters: int = 5


@serializable
class LinearLR(Scheduler):
    """From `start_factor` to `end_factor` in `total_iters` steps: a warm-up, or a decay."""

    start_factor: float = 1.0 / 3
    end_factor: float = 1.0
    total_iters: int = 5


@serializable
class PolynomialLR(Scheduler):
    """Down to zero in `total_iters` steps along a polynomial."""

    total_iters: int = 5
    power: float = 1.0


@serializable
class CosineAnnealingLR(Scheduler):
    """Down to `eta_min` in `T_max` steps along a cosine."""

    T_max: int
    eta_min: float = 0.0


@serializable
class CosineAnnealingWarmRestarts(Scheduler):
    """Cosine decay started again after `T_0` steps, each time `T_mult` times longer."""

    T_0: int
    T_mult: int = 1
    eta_min: float = 0.0


@serializable
class CyclicLR(Scheduler):
    """Between `base_lr` and `max_lr`, up and down."""

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
    """One rise and one long fall (Smith and Topin 2017)."""

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
    """Times what a registered function gives for the step."""

    lr_lambda: Callable[[int], float]


@serializable
class MultiplicativeLR(Scheduler):
    """Times, every step anew, what a registered function gives for the step."""

    lr_lambda: Callable[[int], float]


@serializable
class SequentialLR(Scheduler):
    """One schedule after the other, changing at the milestones."""

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
    """Several schedules at once, their factors multiplied."""

    schedulers: list[Scheduler]

    def _first(self, optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
        return ([part.build(optimizer) for part in self.schedulers],)

    def _settings(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {"optimizer": optimizer}


def _for_each_group(rate: float, optimizer: torch.optim.Optimizer) -> list[float]:
    """A rate that takes the place of the optimizer's own, in the proportion in which its groups have theirs."""
    own = float(optimizer.defaults["lr"])
    return [rate * (float(group["lr"]) / own if own else 1.0) for group in optimizer.param_groups]

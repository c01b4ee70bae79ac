"""Callbacks that lower the learning rate: every few epochs, at listed epochs, or when a measure no longer improves.

Schedules that change the rate with every step are the trainer's `scheduler`. Any schedule and any of these callbacks
can be used together: the rate is that of the schedule times the factors of the callbacks (`optim.learning_rates`).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import field

from sonosco_like.callbacks.measures import FollowsMeasure, improves, lower_is_better
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment, TrainerContext, describe_place, epoch_is_over
from sonosco_like.optim.learning_rates import reduce_rates
from sonosco_like.serialization import serializable, state

logger = logging.getLogger(__name__)


def reduce_learning_rate(context: TrainerContext, factor: float, min_lr: float) -> None:
    """Multiply the rate of every parameter group by `factor`, but not below `min_lr`."""
    if reduce_rates(context.optimizer, context.scheduler, factor, min_lr):
        rates = ", ".join(f"{float(group['lr']):.3g}" for group in context.optimizer.param_groups)
        logger.info("Learning rate reduced to %s in %s.", rates, describe_place(context))


def _check(factor_name: str, factor: float, min_lr: float) -> None:
    if not 0 < factor < 1 or min_lr < 0:
        raise UsageError(
            f"`{factor_name}` must be between 0 and 1 and `min_lr` not negative, got {factor} and {min_lr}."
        )


@serializable
class EpochwiseReduction(AbstractCallback, ABC):
    """Multiplies the learning rate by `reduction_factor` at the end of some epochs, down to `min_lr` at most."""

    reduction_factor: float = 0.5
    min_lr: float = 0.0

    def __post_init__(self) -> None:
        _check("reduction_factor", self.reduction_factor, self.min_lr)

    @abstractmethod
    def is_due(self, epochs_done: int) -> bool:
        """Whether to reduce the rate after this number of epochs."""

    def on_epoch_end(self, moment: Moment) -> None:
        """Reduce the rate if it is due after this epoch."""
        if epoch_is_over(moment) and self.is_due(moment.context.epoch + 1):
            reduce_learning_rate(moment.context, self.reduction_factor, self.min_lr)


@serializable
class StepwiseLearningRateReduction(EpochwiseReduction):
    """Multiplies the learning rate by `reduction_factor` after every `epoch_steps` epochs, down to `min_lr` at most."""

    epoch_steps: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epoch_steps < 1:
            raise UsageError(f"`epoch_steps` must be at least 1 epoch, got {self.epoch_steps}.")

    def is_due(self, epochs_done: int) -> bool:
        """After every `epoch_steps` epochs."""
        return epochs_done % self.epoch_steps == 0


@serializable
class ScheduledLearningRateReduction(EpochwiseReduction):
    """Multiplies the learning rate by `reduction_factor` after each of the listed numbers of epochs.

    `epoch_schedule: [10, 15]` reduces it after ten and after fifteen epochs, down to `min_lr` at most.
    """

    epoch_schedule: list[int] = field(default_factory=list)

    def is_due(self, epochs_done: int) -> bool:
        """After the listed numbers of epochs."""
        return epochs_done in self.epoch_schedule


@serializable
class ReduceLROnPlateau(FollowsMeasure):
    """Multiplies the learning rate by `factor` when the measure `monitor` no longer improves, down to `min_lr` at most.

    This happens after `patience` evaluations in a row that are not better than the best one by more than `min_delta`.
    The metric declares which direction is better. The `cooldown` evaluations after a reduction are not counted.
    """

    factor: float = 0.5
    patience: int = 3
    min_delta: float = 0.0
    cooldown: int = 0
    min_lr: float = 0.0
    best: float | None = state(None)
    waited: int = state(0)
    cooling: int = state(0)

    def __post_init__(self) -> None:
        _check("factor", self.factor, self.min_lr)
        if self.patience < 1 or self.cooldown < 0 or self.min_delta < 0:
            raise UsageError(
                f"`patience` must be at least 1 evaluation, `cooldown` and `min_delta` not negative, "
                f"got {self.patience}, {self.cooldown} and {self.min_delta}."
            )

    def update(self, value: float, context: TrainerContext) -> None:
        """Count evaluations without an improvement, and reduce the rate when there were enough."""
        better = improves(value, self.best, lower_is_better(self.monitor, context), self.min_delta)
        self.best = value if better else self.best
        if self.cooling > 0:
            self.cooling, self.waited = self.cooling - 1, 0
            return
        self.waited = 0 if better else self.waited + 1
        if self.waited >= self.patience:
            reduce_learning_rate(context, self.factor, self.min_lr)
            self.cooling, self.waited = self.cooldown, 0

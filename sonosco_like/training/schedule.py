"""A schedule whose lengths are shares of the training: it is built when the length of the training is known.

A checkpoint holds the steps that were counted. A run that is resumed counts again. If it has become longer or shorter,
as by other `epochs`, the schedule goes on as if it had been the new one from the beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Duration, TrainingLength, batches_of
from sonosco_like.optim import Scheduler
from sonosco_like.optim.learning_rates import restarted_schedule

logger = logging.getLogger(__name__)


def length_of(trainer: Any) -> TrainingLength:
    """How long a training is. Its data must be ready; each process must call this."""
    loader = trainer.train_data_loader
    batches = loader.first_epoch_batches() if hasattr(loader, "first_epoch_batches") else batches_of(loader)
    limits = [each.epoch_limit() for each in trainer.callbacks if isinstance(each, AbstractCallback)]
    batches = min((each for each in (batches, *limits) if each is not None), default=None)
    if trainer.processes.size > 1:
        batches = trainer.processes.from_first(batches)
    limit = Duration.parse(trainer.max_duration) if trainer.max_duration else None
    return TrainingLength(trainer.epochs, batches, trainer.accumulate_gradients, limit)


class ScheduleLengths:
    """How many steps the lengths of a schedule are, such as 72 for `0.1dur`."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}

    def are_known(self, schedule: Any) -> bool:
        """Whether a schedule can be built."""
        return not isinstance(schedule, Scheduler) or self._steps.keys() >= set(schedule.lengths.values())

    def build(self, schedule: Any, optimizer: Any) -> Any:
        """The scheduler of an optimizer that a schedule with lengths describes; what cannot be built as it is."""
        if isinstance(schedule, Scheduler):
            schedule = schedule.in_steps(lambda duration: self._steps[str(duration)])
        return schedule.build(optimizer) if hasattr(schedule, "build") else schedule

    def count(self, schedule: Any, trainer: Any) -> bool:
        """Count the steps of the lengths of a schedule; returns whether they are others than before."""
        if not isinstance(schedule, Scheduler) or not schedule.lengths:
            return False
        length, before = length_of(trainer), self._steps
        self._steps = counted = _counted(schedule, length)
        if counted == before:
            return False
        self._explain(schedule, length, before)
        return True

    def state_dict(self) -> dict[str, int]:
        """The steps by length."""
        return dict(self._steps)

    def load_state_dict(self, content: Mapping[str, int]) -> None:
        """Continue with the steps that were counted before."""
        self._steps = {str(name): int(steps) for name, steps in content.items()}

    def _explain(self, schedule: Scheduler, length: TrainingLength, before: Mapping[str, int]) -> None:
        listed = ", ".join(
            f"{name} {text} = {f'{before[text]:,} -> ' if text in before else ''}{self._steps[text]:,}"
            for name, text in schedule.lengths.items()
        )
        name = type(schedule).__name__
        if before:
            logger.warning(
                "The length of the training changed, so %s goes on as if it had had its new length from the beginning. "
                "Steps: %s.", name, listed,
            )  # fmt: skip
        else:
            logger.info("Steps of %s: %s.", name, listed)
        if length.limit is not None and length.limit.unit == "s":
            logger.warning(
                "%s counts the %d epochs, because the number of steps in a time is not known beforehand. If "
                "`max_duration` ends the training earlier, the learning rate does not reach its end: give as many "
                "`epochs` as fit into the time.", name, length.epochs,
            )  # fmt: skip


def describe_schedule(trainer: Any) -> str:
    """The steps that the lengths of the schedule of a trainer are, for people; nothing if it has none."""
    schedule = trainer.parts.saved_form("scheduler")
    if not isinstance(schedule, Scheduler) or not schedule.lengths:
        return ""
    steps = _counted(schedule, length_of(trainer))
    return ", ".join(f"{name} {text} = {steps[text]:,} steps" for name, text in schedule.lengths.items())


def _counted(schedule: Scheduler, length: TrainingLength) -> dict[str, int]:
    counted = {}

    def steps_of(duration: Duration) -> int:
        counted[str(duration)] = steps = length.steps_of(duration)
        return steps

    try:
        schedule.in_steps(steps_of)
    except UsageError as error:
        raise UsageError(f"{str(error).rstrip('.')}. Give numbers of steps, or data that has a length.") from None
    return counted


def rebuild_schedule(trainer: Any, old: Any, steps: int) -> Any:
    """The schedule of a trainer, built by its stage, after so many steps."""
    before = [float(group["lr"]) for group in trainer.optimizer.param_groups]
    scheduler = restarted_schedule(trainer.optimizer, old, trainer.build_scheduler, steps)
    if steps:
        rate = float(trainer.optimizer.param_groups[0]["lr"])
        logger.info("Learning rate of the next batch: %.4g -> %.4g", before[0], rate)
    return scheduler

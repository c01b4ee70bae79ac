"""From gradients to new weights: accumulation, scaling, clipping, the optimizer's step and its schedule.

A schedule whose lengths are shares of the training is built when the length of the training is known. A checkpoint
holds the steps that were counted. A run that is resumed counts again. If it has become longer or shorter, as by other
`epochs`, the schedule goes on as if it had been the new one from the beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError, as_sentence
from sonosco_like.events import AbstractCallback, Duration, TrainingLength, batches_of
from sonosco_like.optim import Scheduler
from sonosco_like.optim.learning_rates import (
    load_plain_state,
    plain_state,
    replace_scheduled_rates,
    restarted_schedule,
    start_schedule,
    step_schedule,
    steps_done,
)
from sonosco_like.training.checks import check_optimizer
from sonosco_like.training.processes import Processes

Weight: TypeAlias = "Tensor | float"


class Optimization:
    """The optimizer of a model with all that surrounds its step. Its state is part of the state of the trainer.

    The gradients that wait for a step are, at every moment, those of one large batch: the mean of what the batches so
    far gave, in all processes, weighed by what their losses were averaged over.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        scheduler: Any,
        scaler: torch.amp.GradScaler | None,
        processes: Processes | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.steps_before = 0  # of a schedule that a checkpoint has, but cannot be built yet
        self.scaler = scaler
        start_schedule(optimizer, scheduler)
        self.pending = 0  # batches whose gradients are not used yet
        self.weight: Weight | None = 0.0  # what these were averaged over; None if a former version did not save it
        self._processes = processes or Processes()
        self._named = dict(model.named_parameters())
        self._parameters = list(self._named.values())
        self._next_weight: Weight = 1.0
        self._pending_before = 0  # what `pending` was when a batch was last complete
        self._changed: Literal["gradients", "weights"] | None = None  # what a step has begun to change since then

    def set_weight(self, weight: Tensor | float) -> None:
        """Set what the next loss is averaged over; without this, all batches count the same."""
        self._next_weight = weight if type(weight) is float else _number(weight)

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a batch to the mean of those that wait for a step."""
        weight, self._next_weight = self._next_weight, 1.0
        if self.pending == 0 and self._processes.size == 1:
            self.pending, self.weight = 1, weight
        else:
            loss = self._weighed(loss, weight)
        scaled: Any = self.scaler.scale(loss) if self.scaler else loss
        scaled.backward()

    def _weighed(self, loss: Tensor, weight: Weight) -> Tensor:
        """The share of a loss in the mean; the waiting gradients are scaled down accordingly."""
        everywhere = self._processes.total(weight)
        before = self.pending * everywhere if self.weight is None else self.weight
        self.pending += 1
        self.weight = before + everywhere
        if self.pending > 1:
            self._scale_gradients(_ratio(before, self.weight))
        share = _ratio(weight * self._processes.size, self.weight)  # gradients are averaged over the processes
        return loss * (share.to(loss.dtype) if isinstance(share, Tensor) else share)

    def _scale_gradients(self, factor: Weight) -> None:
        gradients = self._gradients()
        if gradients:
            torch._foreach_mul_(gradients, factor)

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def unscale(self) -> None:
        """Restore the true size of the gradients, if a scaler enlarged them. A step begins with this."""
        self._changed = "gradients"
        if self.scaler:
            self.scaler.unscale_(self.optimizer)

    def clip(self, norm: float | None, value: float | None, measured: bool) -> Tensor | None:
        """Limit the gradients. Returns their norm before that, if it is limited or measured."""
        if norm is None and value is None and not measured:
            return None
        parameters = [parameter for parameter in self._parameters if parameter.grad is not None]
        if value is None and norm is not None:
            return nn.utils.clip_grad_norm_(parameters, norm).detach()
        found = nn.utils.get_total_norm(self._gradients()) if measured or norm is not None else None
        if value is not None:
            nn.utils.clip_grad_value_(parameters, value)
        if norm is not None:
            nn.utils.clip_grad_norm_(parameters, norm)
        return found

    def step(self) -> None:
        """Change the weights, clear the gradients, and advance the schedule."""
        self._changed = "weights"
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.forget_gradients()
        if self.scheduler is not None:
            step_schedule(self.optimizer, self.scheduler)

    def forget_gradients(self) -> None:
        """Set the gradients to zero, as torch does but without its profiler, which takes longer than the rest."""
        if getattr(self.optimizer.zero_grad, "__func__", None) is torch.optim.Optimizer.zero_grad:
            for group in self.optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
        else:
            self.optimizer.zero_grad(set_to_none=True)
        self.pending, self.weight = 0, 0.0

    def complete_batch(self) -> None:
        """Complete a batch: everything later belongs to the next one. A step that a Stop interrupted is left out."""
        if self._changed == "gradients":
            self.forget_gradients()
            if self.scaler:
                self.scaler.update()
        self._changed = None
        self._pending_before = self.pending

    def undo(self) -> bool:
        """Forget the batch under way. False if its gradients cannot be separated from those before it."""
        if self._changed == "weights":
            return False
        if self._pending_before == 0:
            self.forget_gradients()
            return True
        return self.pending == self._pending_before and self._changed is None

    def use_schedule(self, scheduler: Any) -> None:
        """Continue with another schedule, which is already at the right step."""
        self.scheduler = scheduler

    @property
    def schedule_steps(self) -> int:
        """The steps that the schedule has done."""
        return self.steps_before if self.scheduler is None else steps_done(self.scheduler.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """The state of each part, and the gradients that wait for their step."""
        parts = {"optimizer": self.optimizer, "scaler": self.scaler}
        named = self._named.items() if self.pending else ()
        return {
            **{name: part.state_dict() for name, part in parts.items() if part is not None},
            **({"scheduler": plain_state(self.scheduler)} if self.scheduler is not None else {}),
            "pending": self.pending,
            **({"weight": self.weight if self.weight is None else float(self.weight)} if self.pending else {}),
            "gradients": {name: parameter.grad for name, parameter in named if parameter.grad is not None},
        }

    def load_state_dict(self, content: dict[str, Any], batches_per_step: int = 1) -> None:
        """Continue from what `state_dict` gave; a former version divided each gradient by `batches_per_step`."""
        for name, part in (("optimizer", self.optimizer), ("scaler", self.scaler)):
            if part is not None:
                part.load_state_dict(content[name])
        if self.scheduler is not None:
            load_plain_state(self.scheduler, content["scheduler"])
        elif "scheduler" in content:
            self.steps_before = steps_done(content["scheduler"])
        self.pending = self._pending_before = content["pending"]
        gradients = content["gradients"]
        for name, parameter in self._named.items():
            parameter.grad = gradients[name].to(parameter.device) if name in gradients else None
        self.weight = content.get("weight") if self.pending else 0.0
        if self.pending and "weight" not in content:
            self._scale_gradients(batches_per_step / self.pending)


def build_optimizer(setting: Any, parameters: Iterable[tuple[str, nn.Parameter]]) -> Any:
    """The optimizer that a record such as `AdamW(lr=0.001)` describes; another optimizer as it is."""
    is_record = hasattr(setting, "build") and not isinstance(setting, type)
    optimizer = setting.build(parameters) if is_record else setting
    check_optimizer(optimizer)
    return optimizer


def _number(weight: Tensor | float) -> Weight:
    """A weight as a number on the host; a tensor on another device stays there, so that nothing waits for it."""
    if not isinstance(weight, Tensor):
        return float(weight)
    if weight.device.type == "cpu":
        return float(weight)
    return weight.detach().to(torch.float32 if weight.device.type == "mps" else torch.float64)


def _ratio(part: Weight, whole: Weight) -> Weight:
    """The share of a part in a whole; zero if the whole is zero."""
    if isinstance(part, Tensor) or isinstance(whole, Tensor):
        return part / whole
    return part / whole if whole else 0.0


logger = logging.getLogger(__name__)


def change_optimizer(trainer: Any, settings: dict[str, Any], old_rate: float | None) -> None:
    """Set settings in every parameter group, and a learning rate in the schedule too.

    A rate is the one the schedule starts from. What schedule and callbacks have made of the old one stays a factor.
    """
    groups = getattr(trainer.optimizer, "param_groups", [])
    for group in groups:
        group.update({name: value for name, value in settings.items() if name != "lr"})
    if "lr" not in settings or not groups:
        return
    share = settings["lr"] / old_rate if old_rate else None
    before = float(groups[0]["lr"])
    for group in groups:
        for name in ("lr", "initial_lr"):
            if name in group:
                group[name] = _changed(group[name], share, settings["lr"])
    for scheduler in _schedulers(trainer.scheduler):
        for name in ("base_lrs", "_last_lr"):
            rates = getattr(scheduler, name, None)
            if rates is not None:
                setattr(scheduler, name, [_changed(rate, share, settings["lr"]) for rate in rates])
    logger.info("learning rate of the next batch: %.4g -> %.4g", before, float(groups[0]["lr"]))


def follow_new_schedule(trainer: Any, schedule: Any) -> None:
    """Let the next batch use the rate of a changed formula."""
    scheduler = trainer.scheduler
    if not hasattr(scheduler, "base_lrs"):  # not built yet: it will be, from the new settings
        return
    factor = schedule.factor(scheduler.last_epoch)
    replace_scheduled_rates(trainer.optimizer, scheduler, [base * factor for base in scheduler.base_lrs])


def _changed(rate: Any, share: float | None, new: float) -> Any:
    return rate * share if share is not None else new


def _schedulers(scheduler: Any) -> Iterator[Any]:
    """A scheduler, and those inside one that is made of others."""
    if hasattr(scheduler, "_last_lr"):
        yield scheduler
    for part in getattr(scheduler, "_schedulers", ()):
        yield from _schedulers(part)


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
        here = ", ".join(f"{text} = {steps:,}" for text, steps in counted.items())
        remedy = (
            f"In steps of this training: {here}. Shares such as 0.1dur fit a training of any length."
            if counted
            else "Give numbers of steps, or data that has a length."
        )
        raise UsageError(f"{as_sentence(error)} {remedy}") from None
    return counted


def rebuild_schedule(trainer: Any, old: Any, steps: int) -> Any:
    """The schedule of a trainer, built by its stage, after so many steps."""
    before = [float(group["lr"]) for group in trainer.optimizer.param_groups]
    scheduler = restarted_schedule(trainer.optimizer, old, trainer.build_scheduler, steps)
    if steps:
        rate = float(trainer.optimizer.param_groups[0]["lr"])
        logger.info("Learning rate of the next batch: %.4g -> %.4g", before[0], rate)
    return scheduler

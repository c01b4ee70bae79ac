"""Callbacks that log at intervals: measures, rates, gradients, memory, time in callbacks. Speed is in `speed`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Every, Moment, TrainerContext, epoch_is_over
from sonosco_like.metrics import RunningMeasures
from sonosco_like.process import resident_memory
from sonosco_like.serialization import serializable, state

_VALIDATION = "val_"
_MEBIBYTE = 2**20


@serializable
class LogMeasures(AbstractCallback):
    """Logs the running averages of the training at intervals, and the measures of every validation.

    `every` is the interval between two logs of the training (`10ba`, `1ep`, `30s`); the end of an
    epoch is always logged. The training is also logged at each validation, so that both can be compared at the same
    step. Reading the averages waits for the device, so a short interval makes the training slower.
    """

    every: int | str = "10ba"
    logged_at: int = state(-1)

    def __post_init__(self) -> None:
        self._every = Every(self.every)

    def __call__(
        self, epoch: int, step: int, performance_measures: Mapping[str, float], context: TrainerContext
    ) -> None:
        """Log the training if the interval is over."""
        if self._every.after_batch(context):
            self._log_training(context)

    def on_validation_end(self, moment: Moment) -> None:
        """Log the measures of a complete validation, and those of the training so far."""
        if moment.error is None:
            self._log_training(moment.context)
            moment.context.log(moment.result)

    def on_epoch_end(self, moment: Moment) -> None:
        """Log the averages of a complete epoch; an uninterrupted run would not log a part of one."""
        if epoch_is_over(moment):
            self._log_training(moment.context)

    def _log_training(self, context: TrainerContext) -> None:
        if self.logged_at != context.global_step:
            self.logged_at = context.global_step
            measures = context.performance_measures
            names = (name for name in measures if not name.startswith(_VALIDATION))
            context.log({name: measures[name] for name in sorted(names, key=lambda name: name != "loss")})


@serializable
class PeriodicLogger(AbstractCallback, ABC):
    """Logs the result of `measure` at the interval `every`."""

    every: int | str = "10ba"

    def __post_init__(self) -> None:
        self._every = Every(self.every)

    @abstractmethod
    def measure(self, context: TrainerContext) -> Mapping[str, float]:
        """The values to log now."""

    def on_batch_end(self, moment: Moment) -> None:
        """Log if the interval ends with this batch."""
        if self._every.after_batch(moment.context):
            self._log(moment.context)

    def on_epoch_end(self, moment: Moment) -> None:
        """Log if the interval ends with this epoch."""
        if epoch_is_over(moment) and self._every.after_epoch(moment.context):
            self._log(moment.context)

    def _log(self, context: TrainerContext) -> None:
        values = self.measure(context)
        if values:
            context.log(values)


@serializable
class LRMonitor(PeriodicLogger):
    """Logs the learning rate at the interval `every`: `learning_rate`, or `learning_rate/<group>` of several groups."""

    def measure(self, context: TrainerContext) -> Mapping[str, float]:
        """The rate of each group of parameters."""
        groups = context.optimizer.param_groups
        if len(groups) == 1:
            return {"learning_rate": float(groups[0]["lr"])}
        return {f"learning_rate/{group.get('name', place)}": float(group["lr"]) for place, group in enumerate(groups)}


@serializable
class MemoryMonitor(PeriodicLogger):
    """Logs memory in MiB at the interval `every`.

    `memory/process` and `memory/process_peak` are the resident memory of this process; `memory/device`,
    `memory/device_reserved` and `memory/device_peak` are the memory of torch on the GPU, if the model is on one.
    """

    every: int | str = "100ba"

    def measure(self, context: TrainerContext) -> Mapping[str, float]:
        """The memory now and at its peak."""
        return memory_in_use(_device_of(context.model))


def memory_in_use(device: torch.device) -> dict[str, float]:
    """The memory of this process and its memory on a device, in MiB."""
    now, peak = resident_memory()
    found: dict[str, float | None] = {"memory/process": now, "memory/process_peak": peak}
    if device.type == "cuda":
        found |= {
            "memory/device": torch.cuda.memory_allocated(device),
            "memory/device_reserved": torch.cuda.memory_reserved(device),
            "memory/device_peak": torch.cuda.max_memory_allocated(device),
        }
    return {name: amount / _MEBIBYTE for name, amount in found.items() if amount is not None}


def _device_of(model: torch.nn.Module) -> torch.device:
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


@serializable
class CallbackTimes(AbstractCallback):
    """Prints, when the training ends, how many seconds each callback took, the slowest first.

    With `every` the times are also logged at that interval, as `callback_seconds/<callback>`. Several callbacks of one
    class are counted together. `seconds` are the times up to the last checkpoint, so that a resumed run continues to
    count; `print_table(context)` prints the times at any moment.
    """

    order: int = 2000
    every: int | str | None = None
    ranks: list[int] | None = field(default_factory=lambda: [0])
    seconds: dict[str, float] = state({})

    def __post_init__(self) -> None:
        self._every = Every(self.every) if self.every is not None else None
        self._before: dict[str, float] | None = None
        self._now: Mapping[str, float] = {}

    def on_attach(self, moment: Moment) -> None:
        """Continue from the times of the checkpoint."""
        self._before, self._now = self.totals(), moment.context.seconds_in_callbacks

    def on_batch_end(self, moment: Moment) -> None:
        """Log if it is time."""
        if self._every is not None and self._every.after_batch(moment.context):
            self._log(moment.context)

    def on_epoch_end(self, moment: Moment) -> None:
        """Log if it is time."""
        if self._every is not None and epoch_is_over(moment) and self._every.after_epoch(moment.context):
            self._log(moment.context)

    def on_checkpoint_start(self, moment: Moment) -> None:
        """Put the times so far into the state, for the checkpoint."""
        self.seconds = self.totals()

    def on_training_end(self, moment: Moment) -> None:
        """Print the table."""
        self.print_table(moment.context)

    def totals(self) -> dict[str, float]:
        """Seconds by callback since the training began."""
        before = self.seconds if self._before is None else self._before
        names = dict.fromkeys([*before, *self._now])
        return {name: before.get(name, 0.0) + self._now.get(name, 0.0) for name in names}

    def print_table(self, context: TrainerContext) -> None:
        """Print the times so far."""
        table = Table("callback", title="Time in callbacks", title_justify="left")
        table.add_column("seconds", justify="right")
        table.add_column("of the training", justify="right")
        for name, seconds in sorted(self.totals().items(), key=lambda item: -item[1]):
            share = f"{100 * seconds / context.seconds:.1f} %" if context.seconds else "-"
            table.add_row(name, f"{seconds:.3f}", share)
        Console().print(table)

    def _log(self, context: TrainerContext) -> None:
        context.log({f"callback_seconds/{name}": seconds for name, seconds in self.totals().items()})


@serializable
class LayerwiseGradientNorm(AbstractCallback):
    """Logs the norm of every layer's gradient, averaged over the optimizer steps of an epoch.

    At the end of each epoch the averages are logged as `layer_gradient_norm/<layer>` and appended to `norms`. They are
    taken before clipping. A layer is a module with parameters of its own.
    """

    norms: list[dict[str, float]] = state([])

    def __post_init__(self) -> None:
        self._means = RunningMeasures()

    def on_clip_gradients_start(self, moment: Moment) -> None:
        """Add the norms of this step; they stay on the device."""
        for layer, gradients in gradients_by_layer(moment.context.model).items():
            self._means.add_mean(layer, norm_of(gradients), 1.0)

    def on_epoch_end(self, moment: Moment) -> None:
        """Log the averages of the epoch, and clear them."""
        if epoch_is_over(moment) and self._means:
            self.norms.append(dict(self._means))
            self._means.clear()
            moment.context.log({f"layer_gradient_norm/{layer}": norm for layer, norm in self.norms[-1].items()})

    def remember_state(self) -> Callable[[], None]:
        """A function that restores the sums and norms of this moment."""
        means, norms = self._means.remember_state(), list(self.norms)

        def restore() -> None:
            means()
            self.norms = norms

        return restore

    def state_dict(self) -> dict[str, Any]:
        """The sums of the epoch under way."""
        return self._means.state_dict()

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue the epoch under way."""
        self._means.load_state_dict(content)


@serializable
class GradMonitor(AbstractCallback):
    """Logs statistics of the gradients at every `every`-th step of the optimizer, before clipping.

    `gradient/norm` is the norm of all gradients. Unless `layers` is false, each layer has `gradient/<layer>/` `norm`,
    `mean`, `std`, `max` (of absolute values) and `zeros` (the share of values that are exactly zero). With
    `distributions` it also has `gradient/<layer>/distribution`: sorted values at even distances, which TensorBoard
    shows as a histogram.
    """

    every: int = 50
    layers: bool = True
    distributions: bool = False
    steps: int = state(0)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UsageError(f"`every` must be at least 1 step of the optimizer, got {self.every}.")

    def on_clip_gradients_start(self, moment: Moment) -> None:
        """Log the gradients at every `every`-th step."""
        self.steps += 1
        if self.steps % self.every == 0:
            self._log(moment.context)

    def _log(self, context: TrainerContext) -> None:
        found = gradients_by_layer(context.model)
        values = {"gradient/norm": norm_of([each for gradients in found.values() for each in gradients])}
        for layer, gradients in found.items() if self.layers else ():
            values |= {f"gradient/{layer}/{name}": value for name, value in statistics_of(gradients).items()}
        numbers = torch.stack(list(values.values())).tolist()
        context.log(dict(zip(values, numbers, strict=True)))
        if self.distributions:
            context.log({f"gradient/{layer}/distribution": distribution_of(each) for layer, each in found.items()})


def gradients_by_layer(model: nn.Module) -> dict[str, list[Tensor]]:
    """The gradients by the module that owns the parameters; `model` for parameters of the model itself."""
    found: dict[str, list[Tensor]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[name.rpartition(".")[0] or "model"].append(parameter.grad)
    return dict(found)


def norm_of(gradients: list[Tensor]) -> Tensor:
    """The norm of several gradients taken as one vector, on their device."""
    norms = torch.stack([torch.linalg.vector_norm(each, dtype=torch.float32) for each in gradients])
    total: Tensor = torch.linalg.vector_norm(norms)
    return total


def statistics_of(gradients: list[Tensor]) -> dict[str, Tensor]:
    """Statistics of several gradients taken as one vector, on their device."""
    values = torch.cat([each.flatten() for each in gradients]).float()
    return {
        "norm": torch.linalg.vector_norm(values),
        "mean": values.mean(),
        "std": values.std(correction=0),
        "max": values.abs().max(),
        "zeros": (values == 0).float().mean(),
    }


def distribution_of(gradients: list[Tensor], points: int = 256) -> Tensor:
    """Values of several gradients taken as one vector: sorted, and no more than `points` of them at even distances."""
    values = torch.cat([each.flatten() for each in gradients]).float().sort().values
    places = torch.linspace(0, len(values) - 1, min(points, len(values))).round().long()
    return values[places.to(values.device)].cpu()

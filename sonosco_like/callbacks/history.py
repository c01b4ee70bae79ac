"""The history of a run, kept in memory and with the trainer: every measure, at the steps at which it was known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from sonosco_like.callbacks.intervals import Every, epoch_is_over
from sonosco_like.errors import did_you_mean
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.serialization import serializable


@dataclass(slots=True)
class Curve:
    """The values of one measure; each with the epoch it was taken in and the batches that were done."""

    epochs: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, epoch: int, step: int, value: Any) -> None:
        """Take in a value; a second one of the same step takes the place of the first."""
        if self.steps and self.steps[-1] == step:
            self.epochs[-1], self.values[-1] = epoch, value
            return
        self.epochs.append(epoch)
        self.steps.append(step)
        self.values.append(value)

    def cut(self, length: int, epoch: int, value: Any) -> None:
        """Drop what was added after so many values, the last of which was this one."""
        for values in (self.epochs, self.steps, self.values):
            del values[length:]
        self.epochs[-1], self.values[-1] = epoch, value

    def __len__(self) -> int:
        return len(self.steps)


@serializable
class HistoryRecorder(AbstractCallback):
    """Records all losses and metrics: those of the training `every` so often, those of each validation as it ends.

    It also hears the `log` event, so other callbacks extend the history with `context.log({"name": value})`; a value
    may be a number or a tensor. `recorder["val_loss"]` is a Curve with `epochs`, `steps` and `values`. The history is
    part of the trainer's state: a resumed run goes on with that of its checkpoint, without a hole and without doubles.
    """

    order: int = 500
    every: str = "10ba"

    def __post_init__(self) -> None:
        self._every = Every(self.every)
        self._curves: dict[str, Curve] = {}

    def on_batch_end(self, moment: Moment) -> None:
        """Record the running averages if it is time."""
        if self._every.after_batch(moment.context):
            self._record_training(moment.context)

    def on_epoch_end(self, moment: Moment) -> None:
        """Record the averages of the whole epoch."""
        if epoch_is_over(moment):
            self._record_training(moment.context)

    def on_validation_end(self, moment: Moment) -> None:
        """Record what the validation found."""
        if moment.error is None:
            self._record(moment.context, validation=True)

    def on_log(self, moment: Moment) -> None:
        """Record what any callback logs."""
        for name, value in moment.args["values"].items():
            self.update_metric(name, value, moment.args["epoch"], moment.args["step"])

    def update_metric(self, name: str, value: Any, epoch: int, step: int) -> None:
        """Add a number or a tensor to the history; a tensor is copied to the host, and what is neither is left out."""
        if isinstance(value, Tensor):
            value = value.detach().cpu().clone() if value.dim() else value.item()
        if isinstance(value, Real):
            value = float(value)
        if isinstance(value, (float, Tensor)):
            self._curves.setdefault(name, Curve()).add(epoch, step, value)

    def names(self) -> list[str]:
        """What has been recorded so far."""
        return list(self._curves)

    def __getitem__(self, name: str) -> Curve:
        if name not in self._curves:
            raise KeyError(f"Nothing named {name!r} was recorded{did_you_mean(name, self._curves) or '.'}")
        return self._curves[name]

    def __contains__(self, name: object) -> bool:
        return name in self._curves

    def __iter__(self) -> Iterator[str]:
        return iter(self._curves)

    def remember_state(self) -> Callable[[], None]:
        """How to get back to the curves of now: they only grow, and only their last values are replaced."""
        ends = {name: (len(curve), curve.epochs[-1], curve.values[-1]) for name, curve in self._curves.items()}

        def restore() -> None:
            for name in [name for name in self._curves if name not in ends]:
                del self._curves[name]
            for name, (length, epoch, value) in ends.items():
                self._curves[name].cut(length, epoch, value)

        return restore

    def state_dict(self) -> dict[str, Any]:
        """Every curve, packed into tensors as far as it is numbers."""
        return {name: _packed(curve) for name, curve in self._curves.items()}

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Go on with these curves."""
        self._curves = {name: _unpacked(curve) for name, curve in content.items()}

    def _record_training(self, context: Any) -> None:
        self._record(context, validation=False)

    def _record(self, context: Any, validation: bool) -> None:
        measures = context.performance_measures
        for name in [name for name in measures if name.startswith("val_") is validation]:
            self.update_metric(name, measures[name], context.epoch, context.global_step)


def _packed(curve: Curve) -> dict[str, Any]:
    numbers = all(isinstance(value, float) for value in curve.values)
    return {
        "epochs": torch.tensor(curve.epochs),
        "steps": torch.tensor(curve.steps),
        "values": torch.tensor(curve.values, dtype=torch.float64) if numbers else list(curve.values),
    }


def _unpacked(content: Mapping[str, Any]) -> Curve:
    values = content["values"]
    return Curve(
        content["epochs"].tolist(),
        content["steps"].tolist(),
        values.tolist() if isinstance(values, Tensor) else list(values),
    )

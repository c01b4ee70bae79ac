"""The history of a run: every measure, at the steps at which it was known."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real
from typing import Any, ClassVar

from torch import Tensor

from sonosco_like.callbacks.curves import Curve, CurveCallback, CurveStore
from sonosco_like.callbacks.intervals import Every, epoch_is_over
from sonosco_like.errors import did_you_mean
from sonosco_like.events import Moment, TrainerContext
from sonosco_like.serialization import serializable, state


@serializable(version=2)
class HistoryRecorder(CurveCallback):
    """Records all losses and metrics: those of the training `every` so often, those of each validation as it ends.

    It also records logged values, so that other callbacks extend the history with `context.log({"name": value})`; a
    value may be a number or a tensor. `recorder["val_loss"]` is a Curve with `epochs`, `steps` and `values`. The
    history is part of the trainer's state: a resumed run continues that of its checkpoint, without gaps or doubles.
    Several recorders of a trainer share one history.
    """

    needs_every_point: ClassVar[bool] = True
    order: int = 500
    every: str = "10ba"
    curves: CurveStore = state(CurveStore(every_point=True))

    def __post_init__(self) -> None:
        self._every = Every(self.every)

    def on_batch_end(self, moment: Moment) -> None:
        """Record the running averages if it is time."""
        if self._every.after_batch(moment.context):
            self._record(moment.context, validation=False)

    def on_epoch_end(self, moment: Moment) -> None:
        """Record the averages of the whole epoch."""
        if epoch_is_over(moment):
            self._record(moment.context, validation=False)

    def on_validation_end(self, moment: Moment) -> None:
        """Record the results of the validation."""
        if moment.error is None:
            self._record(moment.context, validation=True)

    def on_log(self, moment: Moment) -> None:
        """Record the numbers and tensors that are logged."""
        super().on_log(moment)
        for name, value in moment.args["values"].items():
            if isinstance(value, Tensor) and value.dim():
                self.update_metric(name, value, moment.args["epoch"], moment.args["step"])

    def update_metric(self, name: str, value: Any, epoch: int, step: int) -> None:
        """Add a number or a tensor to the history; a tensor is copied to the host, other values are ignored."""
        if isinstance(value, Tensor):
            value = value.detach().cpu().clone() if value.dim() else value.item()
        if isinstance(value, Real):
            value = float(value)
        if isinstance(value, (float, Tensor)):
            self.curves.add(name, epoch, step, value, logged=False)

    def names(self) -> list[str]:
        """The names of everything that was recorded."""
        return list(self.curves)

    def __getitem__(self, name: str) -> Curve:
        if name not in self.curves:
            raise KeyError(f"Nothing named {name!r} was recorded{did_you_mean(name, self.curves) or '.'}")
        return self.curves[name]

    def __contains__(self, name: object) -> bool:
        return name in self.curves

    def __iter__(self) -> Iterator[str]:
        return iter(self.curves)

    def _record(self, context: TrainerContext, validation: bool) -> None:
        measures = context.performance_measures
        for name in [name for name in measures if name.startswith("val_") is validation]:
            self.update_metric(name, measures[name], context.epoch, context.global_step)

"""The curves of a run: one store, which all callbacks that record, draw or report curves share; and their recorder."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from operator import itemgetter
from typing import Any, ClassVar

import torch
from torch import Tensor

from sonosco_like.callbacks.destination import numeric_values
from sonosco_like.errors import did_you_mean
from sonosco_like.events import AbstractCallback, Every, Moment, TrainerContext, epoch_is_over
from sonosco_like.serialization import serializable, state

MOST_POINTS = 2000  # of a curve in a picture: more cannot be seen as separate points


@dataclass(slots=True)
class Curve:
    """The values of one measure: for each its epoch, its step (batches that were done) and whether it was logged.

    A curve is either complete or has every `stride`-th value of `seen` ones, and always the newest. `lowest` and
    `highest` are the extremes of all logged numbers, each with the step at which it was first reached.
    """

    epochs: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    logged: list[bool] = field(default_factory=list)
    stride: int = 1
    seen: int = 0
    lowest: tuple[float, int] = (math.inf, -1)
    highest: tuple[float, int] = (-math.inf, -1)

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, epoch: int, step: int, value: Any, logged: bool = True, most: int | None = None) -> None:
        """Add a value; a second value of one step replaces the first, unless only the first was logged.

        If there are more than `most` values, every second one is dropped from then on.
        """
        if self.steps and self.steps[-1] == step:
            if self.logged[-1] and not logged:
                return
            self._pop()
        else:
            if self.steps and (self.seen - 1) % self.stride:
                self._pop()
            self.seen += 1
        for column, entry in zip(self._columns, (epoch, step, value, logged), strict=True):
            column.append(entry)
        if logged and isinstance(value, float) and math.isfinite(value):
            self.lowest = min(self.lowest, (value, step), key=itemgetter(0))
            self.highest = max(self.highest, (value, step), key=itemgetter(0))
        if most is not None and len(self) > most:
            self.epochs, self.steps = self.epochs[::2], self.steps[::2]
            self.values, self.logged = self.values[::2], self.logged[::2]
            self.stride *= 2

    def merge(self, other: Curve) -> Curve:
        """The points of both curves in the order of their steps; of two at one step, the logged one is taken."""
        points = {point[1]: point for curve in (self, other) for point in curve._points()}
        points |= {point[1]: point for point in self._points() if point[3]}
        lowest = min(self.lowest, other.lowest, key=itemgetter(0))
        highest = max(self.highest, other.highest, key=itemgetter(0))
        return _curve([points[step] for step in sorted(points)], 1, len(points), lowest, highest)

    def logged_numbers(self) -> Curve:
        """The logged numbers for a picture: evenly chosen if there are very many, always with the newest."""
        points = [point for point in self._points() if point[3] and isinstance(point[2], float)]
        stride = 1
        while len(points) > stride * MOST_POINTS:
            stride *= 2
        chosen = [*points[:-1:stride], *points[-1:]]
        return _curve(chosen, self.stride * stride, self.seen, self.lowest, self.highest)

    def remember_state(self) -> Callable[[], None]:
        """A function that restores the current curve; nothing is copied, since only the end of a curve changes."""
        columns, length, ends = self._columns, len(self), [column[-1] for column in self._columns]
        rest = self.stride, self.seen, self.lowest, self.highest

        def restore() -> None:
            for column, end in zip(columns, ends, strict=True):
                column[length - 1 :] = [end]
            self.epochs, self.steps, self.values, self.logged = columns
            self.stride, self.seen, self.lowest, self.highest = rest

        return restore

    @property
    def _columns(self) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        return self.epochs, self.steps, self.values, self.logged

    def _points(self) -> Iterator[tuple[Any, ...]]:
        return zip(*self._columns, strict=True)

    def _pop(self) -> None:
        for column in self._columns:
            column.pop()


@serializable
class CurveStore:
    """The curves of a run by name. It has all points if any callback needs them, else as many as a picture shows."""

    every_point: bool = False

    def __post_init__(self) -> None:
        self._curves: dict[str, Curve] = {}
        self._additions = 0

    def add(self, name: str, epoch: int, step: int, value: Any, logged: bool = True) -> None:
        """Add a value to a curve."""
        most = None if self.every_point else MOST_POINTS
        self._curves.setdefault(name, Curve()).add(epoch, step, value, logged, most)
        self._additions += 1

    def logged_curves(self) -> dict[str, Curve]:
        """The curves of logged numbers, thinned for pictures."""
        curves = {name: curve.logged_numbers() for name, curve in self._curves.items()}
        return {name: curve for name, curve in curves.items() if len(curve)}

    def merge(self, other: CurveStore) -> None:
        """Add the curves of another store."""
        for name, curve in other._curves.items():
            mine = self._curves.setdefault(name, curve)
            if mine is not curve and (mine.steps, mine.logged) != (curve.steps, curve.logged):
                self._curves[name] = mine.merge(curve)
        if other.every_point:
            self.keep_every_point()

    def keep_every_point(self) -> None:
        """Keep all points from now on."""
        if not self.every_point:
            self.every_point = True
            for curve in self._curves.values():
                curve.stride, curve.seen = 1, len(curve)

    def remember_state(self) -> Callable[[], None]:
        """A function that restores the current curves; it does nothing if an earlier moment was restored already."""
        additions = self._additions
        ends = {name: curve.remember_state() for name, curve in self._curves.items()}

        def restore() -> None:
            if self._additions > additions:
                self._additions = additions
                self._curves = {name: self._curves[name] for name in ends}
                for restore_curve in ends.values():
                    restore_curve()

        return restore

    def state_dict(self) -> dict[str, Any]:
        """Every curve; numbers are packed into tensors."""
        return {name: _pack(curve) for name, curve in self._curves.items()}

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Continue with these curves."""
        self._curves = {name: _unpack(curve) for name, curve in content.items()}

    def __getitem__(self, name: str) -> Curve:
        return self._curves[name]

    def __contains__(self, name: object) -> bool:
        return name in self._curves

    def __iter__(self) -> Iterator[str]:
        return iter(self._curves)

    def __len__(self) -> int:
        return len(self._curves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CurveStore) and self._curves == other._curves


@serializable
class CurveCallback(AbstractCallback, ABC):
    """Adds every logged number to the curves of the run.

    All callbacks of this kind have the same store, so that a checkpoint holds each curve once.
    """

    needs_every_point: ClassVar[bool] = False
    curves: CurveStore = state(factory=CurveStore)

    def on_attach(self, moment: Moment) -> None:
        self.share_curves(moment.context)

    def share_curves(self, context: TrainerContext) -> None:
        """Give one store to all callbacks of this kind."""
        sharing = [each for each in context.callbacks if isinstance(each, CurveCallback)]
        store = sharing[0].curves if sharing else self.curves
        for each in sharing:
            if each.curves is not store:
                store.merge(each.curves)
                each.curves = store
        if any(each.needs_every_point for each in sharing):
            store.keep_every_point()

    def on_log(self, moment: Moment) -> None:
        """Add the numbers that are logged."""
        for name, value in numeric_values(moment.args["values"]).items():
            self.curves.add(name, moment.args["epoch"], moment.args["step"], value)

    def remember_state(self) -> Callable[[], None]:
        """A function that restores the current curves."""
        return self.curves.remember_state()

    @staticmethod
    def upgrade(version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields are still those of version 1."""
        return fields

    @staticmethod
    def upgrade_state(version: int, state: dict[str, Any]) -> dict[str, Any]:
        """In version 1 every callback had its own curves."""
        curves = state.pop("state_dict", {})
        return {**state, "curves": {"class": "CurveStore", "state": {"state_dict": curves}}}


def _curve(points: Sequence[tuple[Any, ...]], *rest: Any) -> Curve:
    columns: list[Any] = [list(column) for column in zip(*points, strict=True)]
    return Curve(*columns, *rest) if points else Curve()


def _pack(curve: Curve) -> dict[str, Any]:
    are_numbers = all(isinstance(value, float) for value in curve.values)
    return {
        "epochs": torch.tensor(curve.epochs),
        "steps": torch.tensor(curve.steps),
        "values": torch.tensor(curve.values, dtype=torch.float64) if are_numbers else list(curve.values),
        "logged": torch.tensor(curve.logged),
        "stride": curve.stride,
        "seen": curve.seen,
        "lowest": list(curve.lowest),
        "highest": list(curve.highest),
    }


def _unpack(content: Mapping[str, Any]) -> Curve:
    """A packed curve; the history of older checkpoints has neither extremes nor marks of logged values."""
    values = content["values"]
    values = values.tolist() if isinstance(values, Tensor) else list(values)
    epochs, steps = content["epochs"].tolist(), content["steps"].tolist()
    if "stride" not in content:
        return Curve(epochs, steps, values, [False] * len(steps), seen=len(steps))
    logged = content["logged"].tolist() if "logged" in content else [True] * len(steps)
    lowest, highest = tuple(content["lowest"]), tuple(content["highest"])
    return Curve(epochs, steps, values, logged, content["stride"], content["seen"], lowest, highest)


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
    every: int | str = "10ba"
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

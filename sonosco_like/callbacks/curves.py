"""Curves for pictures: as many points as an eye can tell apart, however long the run."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch

from sonosco_like.callbacks.destinations.destination import numbers
from sonosco_like.callbacks.history import Curve
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.serialization import serializable

MOST_POINTS = 2000


@dataclass(slots=True)
class ThinCurve(Curve):
    """Keeps every `stride`-th value, and always the newest; the stride doubles when there are too many.

    `lowest` and `highest` are the extremes of all values, with the steps at which they were first reached.
    """

    stride: int = 1
    seen: int = 0
    lowest: tuple[float, int] = (math.inf, -1)
    highest: tuple[float, int] = (-math.inf, -1)

    def add(self, epoch: int, step: int, value: Any) -> None:
        """Take in a value; a second one of the same step takes the place of the first."""
        if not self.steps or self.steps[-1] != step:
            if self.steps and (self.seen - 1) % self.stride:
                self._keep(slice(None, -1))
            self.seen += 1
        Curve.add(self, epoch, step, value)
        if math.isfinite(value):
            self.lowest = min(self.lowest, (value, step), key=itemgetter(0))
            self.highest = max(self.highest, (value, step), key=itemgetter(0))
        if len(self.steps) > MOST_POINTS:
            self._keep(slice(None, None, 2))
            self.stride *= 2

    def _keep(self, which: slice) -> None:
        self.epochs, self.steps, self.values = self.epochs[which], self.steps[which], self.values[which]


@serializable
class KeepsCurves(AbstractCallback, ABC):
    """Hears every number that is logged, and keeps it for a picture, thinned out; the curves are part of the state."""

    def __post_init__(self) -> None:
        self.curves: dict[str, ThinCurve] = {}

    def on_log(self, moment: Moment) -> None:
        """Keep the numbers that are logged."""
        for name, value in numbers(moment.args["values"]).items():
            self.curves.setdefault(name, ThinCurve()).add(moment.args["epoch"], moment.args["step"], value)

    def state_dict(self) -> dict[str, Any]:
        """Every curve as tensors."""
        return {name: _packed(curve) for name, curve in self.curves.items()}

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Go on with these curves."""
        self.curves = {name: _unpacked(curve) for name, curve in content.items()}


def _packed(curve: ThinCurve) -> dict[str, Any]:
    return {
        "epochs": torch.tensor(curve.epochs),
        "steps": torch.tensor(curve.steps),
        "values": torch.tensor(curve.values, dtype=torch.float64),
        "stride": curve.stride,
        "seen": curve.seen,
        "lowest": list(curve.lowest),
        "highest": list(curve.highest),
    }


def _unpacked(content: Mapping[str, Any]) -> ThinCurve:
    epochs, steps, values = (content[name].tolist() for name in ("epochs", "steps", "values"))
    lowest, highest = tuple(content["lowest"]), tuple(content["highest"])
    return ThinCurve(epochs, steps, values, content["stride"], content["seen"], lowest, highest)

"""Averages of the weights a run went through; they often hear better than any of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.serialization import serializable, state


@serializable
class WeightAverage:
    """An exponential moving average of the weights, updated at every optimizer step.

    The share of the old average is `decay`, less in the beginning: (1 + n) / (10 + n) after n steps, so that the first
    weights are soon forgotten. Validations judge it beside the weights themselves, as `val_ema_<measure>`, and a
    finished model is used with it. Statistics such as those of batch normalisation are averaged too.
    """

    decay: float = 0.999
    steps: int = state(0)

    def __post_init__(self) -> None:
        if not 0 < self.decay < 1:
            raise UsageError(f"`decay` must lie between 0 and 1, got {self.decay}.")
        self.weights: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take the present weights of a model into the average."""
        current = model.state_dict()
        if not self.weights:
            self.weights = {name: weight.clone() for name, weight in current.items()}
        self.steps += 1
        share = 1 - min(self.decay, (1 + self.steps) / (10 + self.steps))
        averaged = [name for name, weight in current.items() if weight.is_floating_point()]
        torch._foreach_lerp_([self.weights[name] for name in averaged], [current[name] for name in averaged], share)
        for name in current.keys() - set(averaged):
            self.weights[name].copy_(current[name])

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """A model with the averaged weights; its own are back afterwards."""
        own = {name: weight.clone() for name, weight in model.state_dict().items()}
        model.load_state_dict(self.weights)
        try:
            yield
        finally:
            model.load_state_dict(own)

    def state_dict(self) -> dict[str, Any]:
        """The averaged weights."""
        return {"weights": self.weights}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue from averaged weights."""
        self.weights = dict(content["weights"])

"""A host with stages, and a real trainer of a model with two weights: enough to hear every event."""

from __future__ import annotations

from typing import Any

import torch
from placed_batches import PlacedBatches

from sonosco_like.events import AbstractCallback, Hooks, Listener, Moment, fire, listen, stage
from sonosco_like.metrics import Judged, Sums, metric
from sonosco_like.optim import SGD
from sonosco_like.serialization import serializable, state
from sonosco_like.training import ModelTrainer


class Host:
    """Something with two stages, one in the other, and an event of its own."""

    events = ("verified",)

    def __init__(self, *listeners: Listener, rank: int = 0) -> None:
        self.hooks: Hooks = {}
        self.hooks, self.seconds = listen(self, listeners, rank)

    @stage("outer")
    def outer(self, number: int) -> int:
        return self.inner(number, by=10) + 1

    @stage("inner")
    def inner(self, number: int, by: int = 1) -> int:
        if number < 0:
            raise ValueError("negative")
        return number * by

    def verify(self, **args: Any) -> None:
        fire(self.hooks, Moment("verified", self, args))


@serializable
class Line(torch.nn.Module):
    """One weight and one bias."""

    def __post_init__(self) -> None:
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs)


@serializable
def squared_error(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean of squared differences."""
    return (output - target).square().mean()


@serializable
class Batches(PlacedBatches):
    """Pairs of inputs and targets; keeps its place."""

    batches: int = 3

    def batch(self, epoch: int, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((2, 1), float(position)), torch.ones(2, 1)


@metric(lower_is_better=True, over="examples")
def distance(judged: Judged) -> Sums:
    """Mean distance from the target."""
    return Sums((judged.output - judged.batch[1]).abs().sum(), judged.output.numel())


def make_trainer(*callbacks: Any, cls: type[ModelTrainer] = ModelTrainer, **fields: Any) -> ModelTrainer:
    """Two epochs of three batches; validates every two batches and at the ends of epochs."""
    torch.manual_seed(0)
    return cls(
        **{
            "model": Line(),
            "loss": squared_error,
            "epochs": 2,
            "train_data_loader": Batches(),
            "val_data_loader": Batches(batches=1),
            "optimizer": SGD(lr=0.01),
            "metrics": [distance],
            "callbacks": list(callbacks),
            "test_step": 2,
            **fields,
        }
    )


@serializable
class Ear(AbstractCallback):
    """Hears everything and remembers it."""

    heard: list[str] = state([])
    closed: int = state(0)

    def on_event(self, moment: Moment) -> None:
        self.heard.append(moment.event)

    def close(self) -> None:
        self.closed += 1

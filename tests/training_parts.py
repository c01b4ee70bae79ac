"""A tiny model, data and trainer, all serializable, for tests of the loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like import serializable, state
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.optim import AdamW, LinearLR
from sonosco_like.training import ModelTrainer, seed_everything


@serializable
class Net(nn.Module):
    """Two layers with dropout, so that random numbers matter."""

    size: int = 4

    def __post_init__(self) -> None:
        self.layers = nn.Sequential(nn.Linear(self.size, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Numbers in, a number out."""
        return self.layers(inputs)


@serializable
def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error."""
    return (output - target).square().mean()


@serializable
class Sums:
    """Batches that are a pure function of (epoch, position); the last one is smaller."""

    batches: int = 5
    size: int = 4

    def __post_init__(self) -> None:
        self.epoch = 0
        self.position = 0

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch."""
        if epoch != self.epoch:
            self.epoch, self.position = epoch, 0

    def seek(self, position: int) -> None:
        """Go to a batch."""
        self.position = position

    def state_dict(self) -> dict[str, int]:
        """The position."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, content: dict[str, int]) -> None:
        """Go to a position."""
        self.epoch, self.position = content["epoch"], content["position"]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for position in range(self.position, self.batches):
            generator = torch.Generator().manual_seed(1000 * self.epoch + position)
            inputs = torch.randn(3 if position == self.batches - 1 else 8, self.size, generator=generator)
            self.position = position + 1
            yield inputs, inputs.sum(1, keepdim=True)
        self.position = 0


@serializable
class Diary(AbstractCallback):
    """Writes down what it hears, and remembers it over a resume."""

    losses: list[float] = state([])
    heard: list[str] = state([])

    def __call__(self, epoch: int, step: int, performance_measures: Any, context: Any) -> None:
        """The running loss after every batch."""
        self.losses.append(performance_measures["loss"])

    def on_event(self, moment: Moment) -> None:
        """The name of every event."""
        self.heard.append(moment.event)


def make_trainer(**changes: Any) -> ModelTrainer:
    """A trainer of 4 epochs of 5 batches, the same weights each time."""
    seed_everything(3)
    fields: dict[str, Any] = {
        "model": Net(),
        "loss": squared_error,
        "epochs": 4,
        "train_data_loader": Sums(),
        "val_data_loader": Sums(batches=2),
        "optimizer": AdamW(lr=0.01),
        "scheduler": LinearLR(total_iters=10),
        "callbacks": [Diary()],
        "test_step": 3,
    }
    return ModelTrainer(**{**fields, **changes})


@serializable
class Slow(AbstractCallback):
    """Makes batches last, so that a signal can fall into one."""

    pause: float = 0.0

    def on_forward_end(self, moment: Moment) -> None:
        """Wait."""
        time.sleep(self.pause)

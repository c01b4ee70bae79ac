"""A tiny model, data and trainer, all serializable, for tests of the loop."""

from __future__ import annotations

import time
from typing import Any

import torch
from placed_batches import PlacedBatches
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
class Sums(PlacedBatches):
    """Numbers and their sums; the last batch is smaller."""

    size: int = 4

    def batch(self, epoch: int, position: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets."""
        generator = torch.Generator().manual_seed(1000 * epoch + position)
        inputs = torch.randn(3 if position == self.batches - 1 else 8, self.size, generator=generator)
        return inputs, inputs.sum(1, keepdim=True)


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
class Gate(AbstractCallback):
    """Holds a run that was not resumed, so that a signal finds it where the test wants it.

    It waits in the batch after step `at` for as long as there is a file `<name of the run folder>.hold` beside the run.
    """

    at: int = 0

    def on_training_start(self, moment: Moment) -> None:
        """Hold only the first start of a run."""
        self.is_first_start = moment.context.global_step == 0

    def on_forward_end(self, moment: Moment) -> None:
        """Wait."""
        context = moment.context
        file = context.experiment.folder.with_suffix(".hold")
        while self.is_first_start and context.global_step >= self.at and file.exists():
            time.sleep(0.01)


def tiny_config(rest: str, epochs: int = 2) -> str:
    """The YAML of an experiment with these parts, whose trainer has `rest` as further lines."""
    return f"""
class: Experiment
name: tiny
seed: 7
trainer:
  class: ModelTrainer
  model: {{class: training_parts.Net}}
  loss: training_parts.squared_error
  epochs: {epochs}
  train_data_loader: {{class: training_parts.Sums}}
  val_data_loader: {{class: training_parts.Sums, batches: 2}}
  optimizer: {{class: AdamW, lr: 0.01}}
{rest}"""

"""A tiny model, data and trainer, all serializable, for tests of every room."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.metrics import DecodedBatch, metric
from sonosco_like.metrics import Sums as Measured
from sonosco_like.optim import SGD, AdamW, LinearLR
from sonosco_like.serialization import load, save, serializable, state
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
class PlacedBatches(ABC):
    """A loader that keeps its place, as ours do; its batches are a pure function of (epoch, position)."""

    batches: int = 5

    def __post_init__(self) -> None:
        self.epoch = self.position = 0

    @abstractmethod
    def batch(self, epoch: int, position: int) -> Any:
        """The batch at a place."""

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch."""
        if epoch != self.epoch:
            self.epoch, self.position = epoch, 0

    def seek(self, position: int) -> None:
        """Go to a batch."""
        self.position = position

    def state_dict(self) -> dict[str, int]:
        """The place."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, content: dict[str, int]) -> None:
        """Go to a place."""
        self.epoch, self.position = content["epoch"], content["position"]

    def __iter__(self) -> Iterator[Any]:
        for position in range(self.position, self.batches):
            self.position = position + 1
            yield self.batch(self.epoch, position)
        self.position = 0


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

    def __post_init__(self) -> None:
        self.closed = 0  # of this process: no part of what a resume must give back

    def __call__(self, epoch: int, step: int, performance_measures: Any, context: Any) -> None:
        """The running loss after every batch; there is none if the first batch was stopped."""
        if "loss" in performance_measures:
            self.losses.append(performance_measures["loss"])

    def on_event(self, moment: Moment) -> None:
        """The name of every event."""
        self.heard.append(moment.event)

    def close(self) -> None:
        """Count how often."""
        self.closed += 1


def make_trainer(*callbacks: Any, cls: type[ModelTrainer] = ModelTrainer, **fields: Any) -> ModelTrainer:
    """A trainer of 4 epochs of 5 batches, the same weights each time, with a diary unless there are callbacks."""
    seed_everything(3)
    given: dict[str, Any] = {
        "model": Net(),
        "loss": squared_error,
        "epochs": 4,
        "train_data_loader": Sums(),
        "val_data_loader": Sums(batches=2),
        "optimizer": AdamW(lr=0.01),
        "scheduler": LinearLR(total_iters=10),
        "callbacks": list(callbacks) or [Diary()],
        "test_step": 3,
    }
    return cls(**{**given, **fields})


@metric(lower_is_better=True, over="examples")
def distance(judged: DecodedBatch) -> Measured:
    """Mean distance from the target."""
    return Measured((judged.output - judged.batch[1]).abs().sum(), judged.output.numel())


def short_trainer(*callbacks: Any, **fields: Any) -> ModelTrainer:
    """A trainer of 2 epochs of 3 batches, with a metric; validates every two batches and at the ends of epochs."""
    given: dict[str, Any] = {
        "epochs": 2,
        "train_data_loader": Sums(batches=3),
        "val_data_loader": Sums(batches=1),
        "optimizer": SGD(lr=0.01),
        "scheduler": None,
        "metrics": [distance],
        "callbacks": list(callbacks),
        "test_step": 2,
    }
    return make_trainer(**{**given, **fields})


@serializable
class SaveAt(AbstractCallback):
    """Saves the trainer when so many batches are done; hears after all others."""

    at: int
    path: Path
    order: int = 10_000

    def __call__(self, epoch: int, step: int, performance_measures: Any, context: Any) -> None:
        if context.global_step == self.at:
            context.save_checkpoint(self.path)


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


def whole_and_cut(run: Callable[..., ModelTrainer], folder: Path) -> tuple[ModelTrainer, ModelTrainer]:
    """What `run` makes, trained to its end, and trained for 4 batches, saved, and continued from the file."""
    whole = run()
    whole.start_training()
    cut = run(max_duration="4ba")
    cut.start_training()
    save(cut, folder / "cut")
    resumed = load(folder / "cut")
    resumed.max_duration = None
    resumed.continue_training()
    return whole, resumed


def tiny_config(rest: str, epochs: int = 2) -> str:
    """The YAML of an experiment with these parts, whose trainer has `rest` as further lines."""
    return f"""
class: Experiment
name: tiny
seed: 7
trainer:
  class: ModelTrainer
  model: {{class: tiny.Net}}
  loss: tiny.squared_error
  epochs: {epochs}
  train_data_loader: {{class: tiny.Sums}}
  val_data_loader: {{class: tiny.Sums, batches: 2}}
  optimizer: {{class: AdamW, lr: 0.01}}
{rest}"""

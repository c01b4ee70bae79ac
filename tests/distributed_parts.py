"""Data that several processes share, and a model without random numbers, for tests with torchrun."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import torch
from tiny import Sums
from torch import Tensor, nn

from sonosco_like import serializable
from sonosco_like.events import AbstractCallback, Moment


@serializable
class Shares(Sums):
    """The batches of `Sums`, dealt out in turn; the last one of every process is smaller."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rank, self.size_of_world = 0, 1

    def distribute(self, rank: int, world_size: int) -> None:
        """Hand out one share only."""
        self.rank, self.size_of_world = rank, world_size

    def batch(self, epoch: int, position: int) -> tuple[Tensor, Tensor]:
        """The batch at a place of this process's share."""
        return batch_of(epoch, position * self.size_of_world + self.rank, last=position == self.batches - 1)


def batch_of(epoch: int, number: int, last: bool) -> tuple[Tensor, Tensor]:
    """One batch, a pure function of its place."""
    inputs = torch.randn(3 if last else 8, 4, generator=torch.Generator().manual_seed(1000 * epoch + number))
    return inputs, inputs.sum(1, keepdim=True)


@serializable
class Uneven(Shares):
    """Batches of many sizes, so that those of two processes hardly ever count alike."""

    def batch(self, epoch: int, position: int) -> tuple[Tensor, Tensor]:
        """The batch at a place of this process's share."""
        return uneven_batch(epoch, position * self.size_of_world + self.rank)


def uneven_batch(epoch: int, number: int) -> tuple[Tensor, Tensor]:
    """One batch, whose size is a function of its place too."""
    rows = (1, 9, 4, 2, 12, 3, 3, 7, 5, 1)[number % 10]
    inputs = torch.randn(rows, 4, generator=torch.Generator().manual_seed(1000 * epoch + number)) * (1 + number % 3)
    return inputs, inputs.sum(1, keepdim=True)


@serializable
class Plain(nn.Module):
    """A model that does the same each time."""

    def __post_init__(self) -> None:
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Numbers in, a number out."""
        return self.layers(inputs)


@serializable
class Heads(nn.Module):
    """Four heads on one body, of which a batch uses one: which is told by its last column. Nobody uses the last."""

    def __post_init__(self) -> None:
        self.body = nn.Linear(4, 8)
        self.heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(4))

    def forward(self, inputs: Tensor) -> Tensor:
        """Numbers in, a number out."""
        return self.heads[int(inputs[0, 4])](torch.tanh(self.body(inputs[:, :4])))


@serializable
class Tasks(Shares):
    """The batches of `Shares` with the number of a head, another for each."""

    def batch(self, epoch: int, position: int) -> tuple[Tensor, Tensor]:
        """The batch at a place of this process's share."""
        return task_of(epoch, position * self.size_of_world + self.rank)


def task_of(epoch: int, number: int) -> tuple[Tensor, Tensor]:
    """One batch, a pure function of its place; batches 0 and 1 use one head, later ones differ."""
    inputs, targets = batch_of(epoch, number, last=number % 3 == 0)
    head = (0, 0, 1, 2, 1, 1, 0, 2)[number % 8]
    return torch.cat([inputs, torch.full((len(inputs), 1), float(head))], 1), targets


@serializable
class Trip(AbstractCallback):
    """Fails, or gets a signal, in the forward pass of one batch, as long as there is a file `trip` beside the run."""

    at: int = 0
    how: str = "fail"

    def on_forward_end(self, moment: Moment) -> None:
        """Do it."""
        context = moment.context
        if context.global_step == self.at and context.experiment.folder.with_name("trip").exists():
            if self.how == "fail":
                raise ValueError("the dog barks")
            os.kill(os.getpid(), signal.SIGTERM)


@serializable
class ClockAhead(AbstractCallback):
    """In one process, from a step on, hours more have passed than in the others."""

    at: int

    def on_batch_end(self, moment: Moment) -> None:
        if moment.context.global_step >= self.at:
            moment.context.position.set_clock(moment.context.seconds + 36000.0)


@serializable
class Witness(AbstractCallback):
    """Every process writes down what it saw."""

    folder: str = "."

    def on_epoch_end(self, moment: Moment) -> None:
        """Measures and weights, by epoch and rank; of an epoch that a Stop cut short it draws nothing."""
        if moment.error is not None:
            return
        context = moment.context
        seen = {
            "measures": dict(context.performance_measures),
            "weights": torch.cat([each.detach().flatten() for each in context.model.parameters()]).tolist(),
            "drawn": torch.rand(()).item(),
            "folder": context.experiment.folder.name,
        }
        path = Path(self.folder) / f"epoch-{context.epoch}-rank-{context.processes.rank}.json"
        path.write_text(json.dumps(seen))

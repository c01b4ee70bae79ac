"""A script for torchrun: trains on torch's DataLoaders and writes down which examples each process saw."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

import torch
from tiny import squared_error
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from sonosco_like import Experiment, ModelTrainer, serializable
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.optim import SGD
from sonosco_like.training import open_run, seed_everything

EXAMPLES = 23


class Numbered(Dataset):
    """Each example says which it is, in its first number."""

    def __init__(self, examples: int) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return self.examples

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs = torch.tensor([float(index), torch.rand(()).item(), 1.0, 0.0])
        return inputs / self.examples, inputs[:1] / self.examples


@serializable
def train_loader(kind: str = "shuffled") -> DataLoader:
    """Training data, as a user makes it."""
    data = Numbered(EXAMPLES)
    if kind == "dealt":
        return DataLoader(data, 4, sampler=DistributedSampler(data, 2, int(os.environ["RANK"]), seed=5))
    return DataLoader(data, 4, shuffle=kind != "in order", drop_last=kind == "dropped", num_workers=kind == "shuffled")


@serializable
def val_loader() -> DataLoader:
    """Validation data whose last batch is smaller."""
    return DataLoader(Numbered(7), 2)


@serializable
class Seen(AbstractCallback):
    """Writes down the examples of each batch."""

    stop_at: int = 0

    def __post_init__(self) -> None:
        self.rows: list[list] = []

    def on_batch_start(self, moment: Moment) -> None:
        """A training batch."""
        self._note("train", moment)

    def on_validation_batch_start(self, moment: Moment) -> None:
        """A validation batch."""
        self._note("val", moment)

    def on_batch_end(self, moment: Moment) -> None:
        """Stop where it is wanted."""
        if moment.context.global_step == self.stop_at:
            moment.context.save_checkpoint()
            moment.context.stop_training()

    def on_training_end(self, moment: Moment) -> None:
        """Write all down."""
        context = moment.context
        weights = torch.cat([each.detach().flatten() for each in context.model.parameters()]).tolist()
        content = {"rows": self.rows, "weights": weights, "measures": dict(context.performance_measures)}
        Path(f"seen-{self.stop_at}-{context.processes.rank}.json").write_text(json.dumps(content))

    def _note(self, name: str, moment: Moment) -> None:
        inputs = moment.args["batch"][0][:, 0]
        size = EXAMPLES if name == "train" else 7
        self.rows.append([name, moment.context.epoch, [round(float(each) * size) for each in inputs]])


@serializable
class Line(torch.nn.Module):
    """One layer with dropout."""

    def __post_init__(self) -> None:
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        """A number."""
        return self.layer(torch.dropout(inputs, 0.3, self.training))


def main(kind: str, stop_at: int) -> None:
    """Train two epochs; with `stop_at`, stop there, and go on with the run as a new one would."""
    logging.basicConfig(level=logging.INFO)
    seed_everything(11)
    trainer = ModelTrainer(
        Line(), squared_error, 2, train_loader(kind), val_loader(), optimizer=SGD(lr=0.1), test_step=None,
        callbacks=[Seen(stop_at=stop_at)],
    )  # fmt: skip
    experiment = Experiment(name="dealt", trainer=trainer)
    experiment.start(f"run-{stop_at}")
    if stop_at:
        trainer.processes.wait()  # until the first has saved
        seed_everything(99)
        experiment, _ = open_run(f"run-{stop_at}")
        trainer = experiment.trainer
        trainer.train_data_loader, trainer.val_data_loader = train_loader(kind), val_loader()
        trainer.callbacks[0].rows, trainer.callbacks[0].stop_at = [], -stop_at
        experiment.resume()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

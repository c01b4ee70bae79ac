"""Started by torchrun: a Stop, or a failure, in one process at any event is one of all, at the same step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import field

import torch
from distributed_parts import Plain, Shares
from tiny import squared_error
from torch import distributed

from sonosco_like import ModelTrainer, Stop, serializable
from sonosco_like.errors import SonoscoError
from sonosco_like.events import AbstractCallback, Moment, known_events
from sonosco_like.optim import SGD
from sonosco_like.training import seed_everything
from sonosco_like.training.saver import WeightAverage

SCOPES = ("batch", "epoch", "training")
ONCE = ("training", "build", "attach")
NEVER = {"init_start", "init_end", "error", "log"}


@serializable
class At(AbstractCallback):
    """Stops or fails at the second time that it hears an event; at the first if that comes once only."""

    event: str = ""
    scope: str | None = None

    def __post_init__(self) -> None:
        self.heard = 0

    def on_event(self, moment: Moment) -> None:
        """Count, and raise."""
        if moment.event == self.event and moment.error is None:
            self.heard += 1
            if self.heard == (1 if self.event.startswith(ONCE) else 2):
                raise ValueError("a bad day") if self.scope is None else Stop("enough", self.scope)


@serializable
class Save(AbstractCallback):
    """Asks for a checkpoint after every third batch, in one process only."""

    path: str = "saved"
    ranks: list[int] | None = field(default_factory=lambda: [1])

    def on_batch_end(self, moment: Moment) -> None:
        """Ask."""
        if moment.context.global_step % 3 == 0:
            moment.context.save_checkpoint(self.path)


def make_trainer(event: str, rank: int, scope: str | None) -> ModelTrainer:
    """Two epochs of four batches with all that exchanges something."""
    seed_everything(3)
    return ModelTrainer(
        Plain(), squared_error, 2, Shares(batches=4), Shares(batches=2), optimizer=SGD(lr=0.05), test_step=3,
        callbacks=[At(event=event, scope=scope, ranks=[rank]), Save()], averaging=WeightAverage(),
        accumulate_gradients=3,
    )  # fmt: skip


def state_of(trainer: ModelTrainer) -> list:
    """What must be the same in every process."""
    weights = torch.cat([each.detach().flatten() for each in trainer.model.parameters()]).tolist()
    loader = trainer.train_data_loader
    measures = {name: value for name, value in trainer.performance_measures.items() if name != "gradient_norm"}
    return [trainer.epoch, trainer.global_step, trainer.batches_done, loader.epoch, loader.position, weights, measures]


def check_same(name: str, trainer: ModelTrainer) -> None:
    """Refuse processes that are not where the first one is."""
    found = trainer.processes.gather(state_of(trainer))
    assert all(each == found[0] for each in found), (name, found)


def events() -> Iterator[str]:
    """The events of a training."""
    yield from sorted(known_events(ModelTrainer) - NEVER)


def check_stops(rank: int) -> None:
    """A Stop of every scope at every event, heard by one process."""
    for event in events():
        for scope in SCOPES:
            trainer = make_trainer(event, rank, scope)
            trainer.start_training()
            check_same(f"{event} {scope} {rank}", trainer)
            if scope == "training" and is_heard(trainer) and event not in ("epoch_end", "training_end"):
                assert trainer.global_step < 8, event


def is_heard(trainer: ModelTrainer) -> bool:
    """Whether the event came often enough in any process."""
    callback = trainer.callbacks[0]
    return trainer.processes.any(callback.heard >= (1 if callback.event.startswith(ONCE) else 2))[0]


def check_failures(rank: int) -> None:
    """A failure at every event in one process."""
    for event in events():
        trainer = make_trainer(event, rank, None)
        try:
            trainer.start_training()
        except SonoscoError as error:
            said = str(error)
            assert "a bad day" in said, said
            assert f"Process {rank} failed" in said or trainer.processes.rank == rank, said
        else:
            assert not is_heard(trainer), event


def main() -> None:
    """Try all."""
    for rank in map(int, sys.argv[1:]):
        check_stops(rank)
        check_failures(rank)
    assert distributed.get_world_size() > 1


if __name__ == "__main__":
    main()

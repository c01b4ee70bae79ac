"""Loaders of users: whatever kind they are, a run that failed or was stopped goes on as if nothing had happened."""

from __future__ import annotations

import multiprocessing
from contextlib import nullcontext

import pytest
import torch
from loader_parts import KINDS, Noisy, Pairs
from tiny import Diary, make_trainer
from torch import nn
from torch.utils.data import DataLoader

from sonosco_like import Experiment, serializable
from sonosco_like.errors import SonoscoError, UsageError
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.training import open_run, seed_everything


@serializable
class Rows(nn.Module):
    """Linear layers with dropout, for batches and for single examples."""

    def __post_init__(self) -> None:
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, inputs):
        """Numbers in, a number out."""
        return self.layers(inputs)


@serializable
class FailAt(AbstractCallback):
    """Fails once in the forward pass after step `at`, when nothing of that batch may count."""

    at: int = 0
    armed: bool = True

    def on_forward_end(self, moment: Moment) -> None:
        """Fail."""
        if self.armed and moment.context.global_step == self.at:
            raise RuntimeError("no electricity")


def experiment_of(kind, at=10**6, **changes):
    seed_everything(3)
    fields = {"model": Rows(), "train_data_loader": KINDS[kind](), "val_data_loader": None, "scheduler": None}
    fields |= {"epochs": 3, "callbacks": [Diary(), FailAt(at=at)], **changes}
    return Experiment(name="own", trainer=make_trainer(**fields))


def weights(trainer):
    return torch.cat([each.detach().flatten() for each in trainer.model.parameters()])


def resumed(folder, kind):
    """What a new process makes of the folder of a run, given the data again where no file could hold it."""
    seed_everything(999)
    experiment, _ = open_run(folder)
    trainer = experiment.trainer
    if type(trainer.train_data_loader).__name__ == "LoaderFromPython":
        trainer.train_data_loader = KINDS[kind]()
        torch.rand(3)  # whoever makes data may draw random numbers for it
    trainer.callbacks[1].armed = False
    trainer.max_duration = None
    experiment.resume()
    return trainer


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Runs that nobody disturbed, by kind of loader."""
    done = {}

    def run(kind):
        if kind not in done:
            experiment = experiment_of(kind)
            experiment.start(tmp_path_factory.mktemp("whole") / "run")
            done[kind] = experiment.trainer
        return done[kind]

    return run


@pytest.mark.parametrize("at", [1, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_failed_goes_on_as_if_nothing_had_happened(kind, at, unbroken, tmp_path):
    with pytest.raises(SonoscoError, match="no electricity"):
        experiment_of(kind, at=at).start(tmp_path / "run")
    trainer, whole = resumed(tmp_path / "run", kind), unbroken(kind)
    assert trainer.global_step == whole.global_step
    assert trainer.callbacks[0].losses == whole.callbacks[0].losses
    assert torch.equal(weights(trainer), weights(whole))


@pytest.mark.parametrize("at", [6])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_stopped_goes_on_in_the_same_process_and_in_another(kind, at, unbroken, tmp_path):
    whole = unbroken(kind)
    experiment = experiment_of(kind, max_duration=f"{at}ba")
    experiment.start(tmp_path / "run")
    here = experiment.trainer
    assert here.global_step == at
    here.max_duration = here.experiment = None
    here.continue_training()
    there = resumed(tmp_path / "run", kind)
    assert torch.equal(weights(here), weights(whole))
    assert torch.equal(weights(there), weights(whole))
    assert there.callbacks[0].losses == whole.callbacks[0].losses


@pytest.mark.parametrize("ends", [{}, {"at": 2}])
def test_no_worker_outlives_the_training(ends, tmp_path):
    before = set(multiprocessing.active_children())
    experiment = experiment_of("kept workers", **ends)
    with pytest.raises(SonoscoError) if ends else nullcontext():
        experiment.start(tmp_path / "run")
    assert set(multiprocessing.active_children()) <= before


def test_a_run_whose_data_was_made_in_python_says_at_its_start_and_at_its_resume_what_to_do(tmp_path, caplog):
    with caplog.at_level("INFO"):
        experiment_of("shuffled", max_duration="2ba").start(tmp_path / "run")
    assert "DataLoader was made in Python, so checkpoints cannot hold it." in caplog.text
    experiment, _ = open_run(tmp_path / "run")
    with pytest.raises(UsageError, match=r"train_data_loader of this run was a torch.utils.data.*Give it again"):
        experiment.resume()


def test_an_example_that_fails_is_named_with_its_batch(tmp_path):
    class Broken(Noisy):
        def __getitem__(self, index):
            return super().__getitem__(index) if index != 9 else [][index]

    for workers in (0, 1):
        trainer = make_trainer(model=Rows(), train_data_loader=DataLoader(Broken(), 4, num_workers=workers))
        with pytest.raises(
            SonoscoError, match=r"Broken failed at the example with index 9: IndexError.*batch 3 of epoch 1"
        ):
            trainer.start_training()


def test_validation_data_disturbs_no_generator_and_may_be_judged_in_mid_epoch(unbroken):
    class Looking(Diary):
        def on_batch_end(self, moment):
            moment.context.evaluate(moment.context.train_data_loader)

    for kind in ("shuffled", "iterable", "stateful", "with place"):
        seed_everything(3)
        changes = {"val_data_loader": KINDS["shuffled"](), "test_step": 2, "callbacks": [Looking()]}
        trainer = experiment_of(kind, **changes).trainer
        trainer.start_training()
        if kind != "with place":  # it has no way to its beginning
            assert torch.equal(weights(trainer), weights(unbroken(kind))), kind


def test_a_sampler_that_cannot_be_repeated_is_said(caplog):
    class Evolving(Pairs):
        passes = 0

        def __iter__(self):
            self.passes += 1
            return iter([[index] for index in range(self.passes)])

    make_trainer(model=Rows(), train_data_loader=DataLoader(Noisy(), batch_sampler=Evolving())).start_training()
    assert "The order of Evolving is different each time" in caplog.text

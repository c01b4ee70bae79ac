"""One suite for every callback: built with defaults, saved in mid-run, closed after errors, twice in one run."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny import SaveAt
from tiny_speech import Utterances, differences, speech_trainer

from sonosco_like.errors import MissingPackageError
from sonosco_like.events import AbstractCallback, CallbackError, Moment
from sonosco_like.runs.checkpoints import Checkpoints
from sonosco_like.serialization import REGISTRY, diff, dumps, is_abstract, load, loads, save, serializable
from sonosco_like.training import ModelTrainer

CALLBACKS = [
    entry.target
    for entry in REGISTRY.subclasses(AbstractCallback)
    if entry.target.__module__.startswith("sonosco_like.callbacks.") and not is_abstract(entry.target)
]
SETTINGS: dict[str, dict[str, Any]] = {  # so that a run of a few batches has something to hear
    "AllPredictionsSame": {"patience": 50},
    "EvaluationReport": {"every": "1ep"},
    "GradMonitor": {"every": 2},
    "ModelCheckpoint": {"every": "1ep"},
}
AT = 4  # one batch into the second epoch
OF_THE_CLOCK = ("seconds", ".size")  # state that no two runs share: times, and lengths of files that hold times

every_callback = pytest.mark.parametrize("cls", CALLBACKS, ids=lambda cls: cls.__name__)


def make(cls: type[AbstractCallback]) -> AbstractCallback:
    """A callback that is busy in a short run."""
    often = {"every": "2ba"} if any(each.name == "every" for each in dataclasses.fields(cls)) else {}
    return cls(**SETTINGS.get(cls.__name__, often))


@serializable
class SaveWithWitness(SaveAt):
    """Beside the trainer, saves each of its callbacks by itself, as they are when the checkpoint is written."""

    def on_checkpoint_start(self, moment: Moment) -> None:
        if moment.args["path"] == self.path:
            for number, callback in enumerate(moment.context.callbacks[:2]):
                save(callback, self.path.with_name(f"callback-{number}"))


@serializable
class Ear(AbstractCallback):
    """Hears everything."""

    def __post_init__(self) -> None:
        self.heard: set[str] = set()

    def on_event(self, moment: Moment) -> None:
        self.heard.add(moment.event)
        if moment.event == "batch_end":
            moment.context.log({"probe/number": 1.0, "probe/text": "heard", "probe/tensor": torch.ones(3)})


def in_folder(trainer: ModelTrainer, folder: Path) -> ModelTrainer:
    """The trainer with what callbacks see of an experiment."""
    folder.mkdir(exist_ok=True)
    trainer.experiment = SimpleNamespace(name="tiny", folder=folder, checkpoints=Checkpoints(folder), seed=1)
    return trainer


def short_trainer(*callbacks: Any, **fields: Any) -> ModelTrainer:
    """Two epochs of three batches."""
    loaders = {"train_data_loader": Utterances(batches=3), "val_data_loader": Utterances(batches=2, seed=7)}
    return speech_trainer(*callbacks, **{"epochs": 2, **loaders, **fields})


def start(trainer: ModelTrainer) -> None:
    """Train, unless the callback needs a package that only some have installed."""
    try:
        trainer.start_training()
    except CallbackError as error:
        if isinstance(error.__cause__, MissingPackageError):
            pytest.skip(str(error))
        raise


@dataclass
class Run:
    """Two instances of a callback in one run, and in the same run resumed from its middle."""

    folder: Path
    whole: ModelTrainer
    resumed: ModelTrainer
    closed: set[int]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The run of a callback; made once, looked at by several tests."""
    known: dict[type, Run] = {}

    def run_of(cls: type[AbstractCallback]) -> Run:
        if cls not in known:
            known[cls] = make_run(cls, tmp_path_factory.mktemp(cls.__name__))
        return known[cls]

    return run_of


def make_run(cls: type[AbstractCallback], folder: Path) -> Run:
    closed: set[int] = set()
    close = cls.close

    def noted(self: AbstractCallback) -> None:
        closed.add(id(self))
        close(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(cls, "close", noted)
        saving = SaveWithWitness(at=AT, path=folder / "saved")
        whole = in_folder(short_trainer(make(cls), make(cls), Ear(), saving), folder / "run")
        start(whole)
        resumed = in_folder(load(folder / "saved"), folder / "run")
        resumed.continue_training()
    return Run(folder, whole, resumed, closed)


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    """Whatever is written without a run folder lands here."""
    monkeypatch.chdir(tmp_path)


def test_there_are_callbacks_to_test():
    assert {"EarlyStopping", "HistoryRecorder", "ModelCheckpoint"} <= {cls.__name__ for cls in CALLBACKS}


@every_callback
def test_it_is_built_with_defaults_and_comes_back_from_yaml(cls):
    made = cls()
    again = loads(dumps(made))
    assert type(again) is cls
    assert diff(made, again) == []


@every_callback
def test_it_is_exported_by_the_room(cls):
    import sonosco_like.callbacks

    assert getattr(sonosco_like.callbacks, cls.__name__, None) is cls
    assert cls.__name__ in sonosco_like.callbacks.__all__


@every_callback
def test_every_event_it_waits_for_is_heard(cls, runs):
    whole = runs(cls).whole
    waits_for = {name.removeprefix("on_") for name, _ in inspect.getmembers(cls, inspect.isfunction)}
    waits_for = {event for event in waits_for if event in whole.listeners.hooks} - {"error", "event"}
    assert waits_for or cls.__call__ is not AbstractCallback.__call__
    assert waits_for <= whole.callbacks[2].heard


@every_callback
def test_it_is_saved_in_mid_run_with_what_it_has_learned(cls, runs):
    run = runs(cls)
    saved = load(run.folder / "saved").callbacks
    for number in (0, 1):
        assert diff(saved[number], load(run.folder / f"callback-{number}")) == []


@every_callback
def test_a_resumed_run_ends_as_the_whole_one(cls, runs):
    run = runs(cls)
    assert run.whole.global_step == run.resumed.global_step
    differing = differences(run.whole, run.resumed)
    assert [path for path in differing if not any(part in path for part in OF_THE_CLOCK)] == []


@every_callback
def test_two_instances_in_one_run_do_not_mix(cls, runs):
    one, other = runs(cls).whole.callbacks[:2]
    mutable = [each.name for each in dataclasses.fields(cls) if not each.init and is_mutable(getattr(one, each.name))]
    assert [name for name in mutable if getattr(one, name) is getattr(other, name)] == []


def is_mutable(value: Any) -> bool:
    return isinstance(value, (list, dict, set, torch.Tensor))


@every_callback
def test_every_instance_is_closed_in_every_run(cls, runs):
    run = runs(cls)
    instances = [callback for trainer in (run.whole, run.resumed) for callback in trainer.callbacks[:2]]
    assert {id(callback) for callback in instances} <= run.closed


@serializable
def failing_loss(output, batch):
    """A loss that cannot be computed in the second epoch."""
    if "u1000-0" in batch.ids:
        raise ArithmeticError("no loss today")
    return output.ctc_logits_BSV.square().mean()


@every_callback
def test_it_is_closed_after_an_error(cls, monkeypatch, tmp_path, caplog):
    ear, error_heard = Ear(), []
    close = cls.close

    def noted(self):
        error_heard.append("error" in ear.heard)
        close(self)

    monkeypatch.setattr(cls, "close", noted)
    trainer = in_folder(short_trainer(make(cls), ear, loss=failing_loss), tmp_path / "run")
    with pytest.raises(ArithmeticError, match="no loss today"):
        start(trainer)
    assert trainer.global_step == 3
    assert error_heard[-1]
    assert "failed in close()" not in caplog.text

"""Saving in the background: training waits for the copy, and nothing that was handed over is lost or half there."""

from __future__ import annotations

import logging
import threading

import pytest
import torch
from tiny import Diary, make_trainer

from sonosco_like import load, serializable, state
from sonosco_like.callbacks import ModelCheckpoint
from sonosco_like.errors import ConfigError, StorageError
from sonosco_like.events import AbstractCallback
from sonosco_like.runs.checkpoints import Checkpoints
from sonosco_like.serialization import verify
from sonosco_like.training import Experiment
from sonosco_like.training.experiment import RunFailedError
from sonosco_like.training.saver import CheckpointSaver


@serializable
class Weights:
    """Something with a tensor that training would change."""

    number: int = state(0)
    tensor: torch.Tensor | None = state(None)


def weights(number: int, size: int = 1000) -> Weights:
    made = Weights()
    made.number, made.tensor = number, torch.full((size,), float(number))
    return made


@pytest.fixture
def gate():
    """A disk that is slow: what waits for it goes on when the test says so, and at its end in any case."""
    opened = threading.Event()
    yield opened
    opened.set()


def test_a_save_does_not_wait_for_the_disk_and_holds_what_was_there_when_it_was_asked_for(tmp_path, gate):
    saver, value = CheckpointSaver(), weights(1)
    saver.save(value, tmp_path / "first")
    saver.then(lambda: gate.wait(60))  # the thread is busy from here on
    saver.save(value, tmp_path / "second")
    value.number = 2
    value.tensor.fill_(2.0)
    assert not (tmp_path / "second").exists()
    gate.set()
    saver.close()
    found = load(tmp_path / "second", Weights)
    assert (found.number, set(found.tensor.tolist())) == (1, {1.0})


def test_the_next_save_waits_for_the_one_in_flight(tmp_path, gate):
    saver = CheckpointSaver()
    saver.listeners = [lambda path: gate.wait(60)]
    saver.save(weights(1), tmp_path / "first")
    second = threading.Thread(target=saver.save, args=(weights(2), tmp_path / "second"))
    second.start()
    second.join(0.2)
    assert second.is_alive(), "one copy in memory, not two"
    gate.set()
    second.join()
    saver.close()
    assert [load(tmp_path / name, Weights).number for name in ("first", "second")] == [1, 2]


def test_memory_that_is_used_again_holds_each_time_what_is_saved(tmp_path):
    saver = CheckpointSaver()
    for number, size in enumerate([10, 10, 20, 10], 1):
        saver.save(weights(number, size), tmp_path / str(number))
    saver.close()
    for number, size in enumerate([10, 10, 20, 10], 1):
        assert load(tmp_path / str(number), Weights).tensor.tolist() == [float(number)] * size


@pytest.mark.parametrize("background", [True, False])
def test_what_is_to_be_done_afterwards_is_done_in_order_and_only_after_a_save_that_went_well(tmp_path, background):
    saver, done = CheckpointSaver(background=background), []
    saver.listeners = [lambda path: done.append(path.name)]
    saver.save(weights(1), tmp_path / "good")
    saver.then(lambda: done.append("after good"))
    (tmp_path / "file").touch()
    saver.save(weights(2), tmp_path / "file" / "bad")
    saver.then(lambda: done.append("after bad"))
    saver.save(weights(3), tmp_path / "better")
    saver.then(lambda: done.append("after better"))
    saver.wait()
    assert done == ["good", "after good", "better", "after better"]
    assert saver.failed == {tmp_path / "file" / "bad"}
    saver.close()


@pytest.mark.parametrize("background", [True, False])
def test_a_failure_is_reported_where_training_asks_and_the_next_save_works(tmp_path, caplog, background):
    (tmp_path / "file").touch()
    for policy in ("continue", "stop"):
        saver = CheckpointSaver(on_failure=policy, background=background)
        saver.save(weights(1), tmp_path / "file" / "checkpoint")
        saver.wait()
        if policy == "stop":
            with pytest.raises(StorageError, match=r"`on_failure` is stop\. .*could not be written"):
                saver.check()
        else:
            saver.check()
            assert "could not be saved; training goes on" in caplog.text
        saver.check()  # said once
        saver.save(weights(2), tmp_path / policy)
        saver.close()
        assert load(tmp_path / policy, Weights).number == 2


def test_an_error_afterwards_is_reported_too(tmp_path, caplog):
    saver = CheckpointSaver()

    def fail() -> None:
        raise PermissionError("the pointer is not ours")

    saver.save(weights(1), tmp_path / "checkpoint")
    saver.then(fail)
    saver.close()
    saver.check()
    assert "the pointer is not ours" in caplog.text


def test_what_cannot_be_saved_at_all_is_refused_at_once(tmp_path):
    saver = CheckpointSaver()
    value = weights(1)
    value.tensor = threading.Lock()
    with pytest.raises(ConfigError):
        saver.save(value, tmp_path / "checkpoint")
    saver.close()
    assert not (tmp_path / "checkpoint").exists()


def test_a_process_that_just_ends_completes_the_save_in_flight(tmp_path, run_python):
    code = f"""
import torch
from pathlib import Path
from sonosco_like import serializable, state
from sonosco_like.training.saver import CheckpointSaver

@serializable
class Big:
    tensor: torch.Tensor | None = state(None)

big = Big()
big.tensor = torch.zeros(5_000_000)
CheckpointSaver().save(big, Path({str(tmp_path)!r}) / "checkpoint")
raise SystemExit(3)
"""
    assert run_python(code).returncode == 3
    verify(tmp_path / "checkpoint")


@serializable
class Obstacle(AbstractCallback):
    """Puts a file where the folder of the checkpoints was, for some batches, so that they cannot be written."""

    begin: int
    end: int

    def on_batch_start(self, moment):
        folder = moment.context.experiment.checkpoints.folder
        if moment.context.global_step == self.begin:
            moment.context.saver.wait()
            folder.rename(folder.with_name("aside"))
            folder.touch()
        if moment.context.global_step == self.end:
            moment.context.saver.wait()
            folder.unlink()
            folder.with_name("aside").rename(folder)


def test_training_goes_on_when_checkpoints_cannot_be_written_and_their_places_are_not_lost(tmp_path, caplog):
    policy = ModelCheckpoint(every="3ba", keep_last=2, save_at_end=False)
    trainer = make_trainer(callbacks=[Diary(), Obstacle(begin=8, end=13), policy])
    assert Experiment(name="tiny", trainer=trainer).start(tmp_path / "run") == 0
    assert trainer.global_step == 20
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("could not be saved; training goes on" in line for line in said) == 2
    assert [path.name for path in Checkpoints(tmp_path / "run").all()] == ["step-00000015", "step-00000018"]


def test_training_ends_when_it_should_and_says_how_to_go_on(tmp_path):
    saver = CheckpointSaver(on_failure="stop")
    callbacks = [Diary(), Obstacle(begin=8, end=99), ModelCheckpoint(every="3ba")]
    trainer = make_trainer(callbacks=callbacks, saver=saver)
    folder = tmp_path / "run"
    with pytest.raises(RunFailedError, match=rf"The run failed at step \d+: .*sonosco resume {folder}") as caught:
        Experiment(name="tiny", trainer=trainer).start(folder)
    assert caught.value.exit_code == 1
    assert 9 <= trainer.global_step <= 12


@pytest.mark.parametrize("background", [True, False])
def test_the_bits_of_a_run_do_not_depend_on_how_it_is_saved(tmp_path, background):
    policy = ModelCheckpoint(every="4ba", keep_last=9)
    trainer = make_trainer(callbacks=[Diary(), policy], saver=CheckpointSaver(background=background))
    Experiment(name="tiny", trainer=trainer).start(tmp_path / "run")
    plain = make_trainer()
    plain.start_training()
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, trainer.model.state_dict()[name])
    assert [load(path).global_step for path in Checkpoints(tmp_path / "run").all()] == [4, 8, 12, 16, 20]


def test_a_failed_run_says_where_and_how_it_is_continued(tmp_path):
    trainer = make_trainer(callbacks=[Diary(), ModelCheckpoint(every="3ba"), Failing(at=7)])
    with pytest.raises(RunFailedError, match=r"failed at step 7: .*the data is odd.*\. Continue with: sonosco resume"):
        Experiment(name="tiny", trainer=trainer).start(tmp_path / "run")


@serializable
class Failing(AbstractCallback):
    """Fails at a step."""

    at: int

    def on_batch_start(self, moment):
        if moment.context.global_step == self.at:
            raise ZeroDivisionError("the data is odd")

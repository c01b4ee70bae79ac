"""What a run does when a batch goes wrong: losses that are no numbers, exceptions, and what is left behind."""

from __future__ import annotations

import logging
import threading

import pytest
import torch
from tiny import Diary, Sums, make_trainer

from sonosco_like import diff, serializable
from sonosco_like.callbacks import ModelCheckpoint
from sonosco_like.events import AbstractCallback, CallbackError
from sonosco_like.records import Batch
from sonosco_like.training import Experiment, NonFiniteLossError, open_run
from sonosco_like.training.batches import describe_batch
from sonosco_like.training.experiment import RunFailedError


@serializable
class Poisoned(Sums):
    """The same batches, one of which in one epoch holds a NaN."""

    bad: int = 2
    bad_epoch: int = 1

    def __iter__(self):
        for inputs, targets in super().__iter__():
            if (self.epoch, self.position) == (self.bad_epoch, self.bad + 1):
                inputs = torch.full_like(inputs, torch.nan)
            yield inputs, targets


@serializable
class FailsOnce(AbstractCallback):
    """Raises at one event of one step, unless `Poison.cured` says that the user mended it."""

    event: str = "forward_end"
    at: int = 8

    def on_event(self, moment) -> None:
        if moment.event == self.event and moment.context.global_step == self.at and not CURED:
            raise RuntimeError("the disk of the cluster is on fire")


CURED: list[bool] = []


@pytest.fixture(autouse=True)
def ill():
    CURED.clear()


def test_a_loss_that_is_no_number_stops_the_run_before_the_weights_change():
    trainer = make_trainer(train_data_loader=Poisoned())
    with pytest.raises(NonFiniteLossError, match="nan in epoch 2, batch 3, on a batch with inputs of 8 x 4"):
        trainer.start_training()
    assert all(parameter.isfinite().all() for parameter in trainer.model.parameters())


def test_the_utterances_of_a_batch_are_named():
    batch = Batch(torch.zeros(2, 5, 3), *3 * [torch.zeros(2)], ids=["anna-1", "ben-2"])
    assert describe_batch(batch) == "features of 2 x 5 x 3, utterances anna-1, ben-2"


def test_a_batch_can_be_left_out(caplog):
    trainer = make_trainer(train_data_loader=Poisoned(), non_finite="skip")
    with caplog.at_level(logging.WARNING):
        trainer.start_training()
    assert trainer.global_step == 20
    assert "The loss is nan in epoch 2, batch 3" in caplog.text
    assert "left out" in caplog.text
    assert all(weight.isfinite().all() for weight in trainer.model.state_dict().values())
    assert len(trainer.callbacks[0].losses) == 20
    assert all(loss == loss for loss in trainer.callbacks[0].losses)


def test_weights_can_go_back_to_the_newest_checkpoint(tmp_path, caplog):
    trainer = make_trainer(
        train_data_loader=Poisoned(), non_finite="rollback", callbacks=[ModelCheckpoint(every="3ba", keep_last=9)]
    )
    with caplog.at_level(logging.WARNING):
        Experiment(name="poisoned", trainer=trainer).start(tmp_path / "run")
    assert "Back to the weights of step-00000006" in caplog.text
    assert trainer.global_step == 20
    assert all(weight.isfinite().all() for weight in trainer.model.state_dict().values())


def test_rolling_back_without_a_checkpoint_ends_the_run():
    trainer = make_trainer(train_data_loader=Poisoned(), non_finite="rollback")
    with pytest.raises(NonFiniteLossError, match="cannot be rolled back: there is no checkpoint to go back to"):
        trainer.start_training()


def test_rolling_back_again_and_again_ends_the_run(tmp_path):
    @serializable
    class Always(Poisoned):
        def __iter__(self):
            for inputs, targets in Sums.__iter__(self):
                yield (inputs * torch.nan if self.epoch else inputs), targets

    trainer = make_trainer(
        train_data_loader=Always(), non_finite="rollback", callbacks=[ModelCheckpoint(every="1ep", keep_last=9)]
    )
    with pytest.raises(Exception, match="3 times back did not help"):
        Experiment(name="poisoned", trainer=trainer).start(tmp_path / "run")


IN_A_BATCH = ["fetch_end", "batch_start", "forward_end", "loss_end", "backward_end", "batch_end"]
AFTER_AN_EPOCH = ["validation_batch_end", "validation_end", "epoch_end"]


@pytest.mark.parametrize(
    ("event", "at"), [(event, at) for at in (9, 10) for event in IN_A_BATCH] + [(event, 10) for event in AFTER_AN_EPOCH]
)
def test_a_failure_leaves_the_last_good_batch_and_the_run_goes_on_bit_exact(event, at, tmp_path):
    def trained(**changes):
        return make_trainer(callbacks=[Diary(), FailsOnce(**changes)], test_step=5)

    CURED.append(True)
    whole = trained(event=event, at=at)
    Experiment(name="whole", trainer=whole).start(tmp_path / "whole")
    CURED.clear()
    with pytest.raises(Exception, match="the disk of the cluster is on fire"):
        Experiment(name="whole", trainer=trained(event=event, at=at)).start(tmp_path / "run")
    CURED.append(True)
    experiment, step = open_run(tmp_path / "run")
    assert step == at
    experiment.resume()
    assert _but_for_the_clock(whole, experiment.trainer) == []
    assert experiment.trainer.callbacks[0].losses == whole.callbacks[0].losses


def _but_for_the_clock(a, b):
    ignored = ("state.position.seconds", "heard")
    return [str(found) for found in diff(a, b) if not any(word in found.path for word in ignored)]


def test_all_listeners_hear_an_event_at_which_one_fails():
    diary = Diary()
    with pytest.raises(CallbackError, match="FailsOnce failed at batch_end"):
        make_trainer(callbacks=[FailsOnce(event="batch_end", at=1), diary]).start_training()
    assert len(diary.losses) == 1


@serializable
class FailsOnError(AbstractCallback):
    """Has trouble of its own when it is told of that of others."""

    def on_error(self, moment) -> None:
        raise OSError("no pictures on a full disk")


def test_what_ends_a_run_is_not_hidden_by_a_callback_that_fails_on_top_of_it(caplog):
    trainer = make_trainer(callbacks=[FailsOnError(), FailsOnce()])
    with pytest.raises(CallbackError, match="FailsOnce failed at forward_end"):
        trainer.start_training()
    assert "FailsOnError failed at error: OSError: no pictures on a full disk" in caplog.text


def test_a_run_that_fails_leaves_no_thread_behind(tmp_path):
    before = set(threading.enumerate())
    trainer = make_trainer(callbacks=[ModelCheckpoint(every="3ba"), FailsOnce()])
    with pytest.raises(RunFailedError):
        Experiment(name="failing", trainer=trainer).start(tmp_path / "run")
    assert set(threading.enumerate()) <= before

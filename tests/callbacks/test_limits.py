"""LimitBatches: epochs and validations that end early, and are otherwise like any."""

from __future__ import annotations

import pytest
from tiny_run import TinyLoader, differences, make_trainer, whole_and_resumed

from sonosco_like.callbacks import LimitBatches, ProgressBar
from sonosco_like.errors import UsageError
from sonosco_like.events import batches_of, epoch_batches


def test_epochs_and_validations_have_so_many_batches():
    seen, judged = [], []
    trainer = make_trainer(
        LimitBatches(train_batches=2, validation_batches=1),
        ("batch_start", lambda moment: seen.append(moment.args["batch"].ids[0])),
        ("validation_batch_end", lambda moment: judged.append(moment.args["batch"].ids[0])),
        test_step=None,
    )
    trainer.start_training()
    assert seen == ["u0-0", "u1-0", "u1000-0", "u1001-0", "u2000-0", "u2001-0"]
    assert judged == ["u7-0"] * 3
    assert (trainer.epoch, trainer.global_step) == (3, 6)
    assert "val_loss" in trainer.performance_measures


def test_no_limit_is_no_limit():
    trainer = make_trainer(LimitBatches(train_batches=None, validation_batches=None))
    trainer.start_training()
    assert trainer.global_step == 12


@pytest.mark.parametrize("at", [2, 3, 4])
def test_a_limited_run_is_resumed_exactly(at, tmp_path):
    whole, resumed = whole_and_resumed(at, tmp_path, LimitBatches(train_batches=2, validation_batches=1))
    assert whole.global_step == resumed.global_step == 6
    assert differences(whole, resumed) == []


def test_who_counts_batches_knows_of_the_limit(capsys):
    trainer = make_trainer(LimitBatches(train_batches=2, validation_batches=1), ProgressBar(every="1ba"), epochs=1)
    assert epoch_batches(trainer) == 2
    trainer.start_training()
    assert "epoch 1/1, step 2/2, done" in capsys.readouterr().err


def test_a_limit_beyond_the_data_changes_nothing():
    assert epoch_batches(make_trainer(LimitBatches(train_batches=99))) == 4


def test_a_limited_loader_is_as_long_as_it_lasts():
    lengths = []
    look = ("validation_start", lambda moment: lengths.append(batches_of(moment.args["loader"])))
    make_trainer(LimitBatches(validation_batches=1), look, epochs=1, test_step=None).start_training()
    unknown = make_trainer(
        LimitBatches(validation_batches=5), look, epochs=1, test_step=None, val_data_loader=Endless()
    )
    unknown.start_training()
    assert lengths == [1, None]


class Endless:
    """Batches without end, and without a length."""

    dataset = TinyLoader().dataset

    def __iter__(self):
        while True:
            yield from TinyLoader(batches=1)


@pytest.mark.parametrize("limit", [{"train_batches": 0}, {"validation_batches": -1}])
def test_less_than_a_batch_is_refused(limit):
    with pytest.raises(UsageError, match="must be at least 1 batch"):
        LimitBatches(**limit)

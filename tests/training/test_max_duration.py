"""How long a training lasts: `max_duration`, and shares of a training, which mean the same to everybody."""

from __future__ import annotations

import logging

import pytest
from tiny import Diary, Sums, make_trainer

from sonosco_like.callbacks import LogMeasures
from sonosco_like.events.duration import Every


class Counted(Sums):
    """The same batches, and how many they are."""

    def __len__(self) -> int:
        return self.batches


@pytest.mark.parametrize(
    ("duration", "steps"), [("2ep", 10), ("7ba", 7), ("0.5dur", 10), ("0.3dur", 6), ("0.31dur", 7), ("1dur", 20)]
)
def test_max_duration_ends_the_training(duration, steps):
    trainer = make_trainer(max_duration=duration, train_data_loader=Counted())
    trainer.start_training()
    assert trainer.global_step == steps
    trainer.continue_training()
    assert trainer.global_step == steps


@pytest.mark.parametrize("share", ["0.05dur", "0.1dur", "0.3dur", "0.35dur", "0.7dur"])
def test_a_share_of_the_training_is_one_of_its_batches_for_everybody(share):
    def steps_of(**changes):
        every, seen = Every(share), []
        look = (
            "batch_end",
            lambda moment: every.after_batch(moment.context) and seen.append(moment.context.global_step),
        )
        trainer = make_trainer(callbacks=[look], train_data_loader=Counted(batches=10), **changes)
        trainer.start_training()
        return trainer.global_step, seen

    assert steps_of(max_duration=share)[0] == steps_of()[1][0]
    assert steps_of(max_duration="0.3dur")[0] == 12


def test_a_share_that_is_over_with_an_epoch_lets_it_come_to_its_end():
    diary = Diary()
    trainer = make_trainer(max_duration="0.5dur", callbacks=[diary], test_step=None, train_data_loader=Counted())
    trainer.start_training()
    assert (trainer.epoch, trainer.batches_done) == (2, 0)
    assert diary.heard.count("validation_end") == 2


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_duration": "0.3dur"}, "max_duration: 0.3dur"),
        ({"callbacks": [LogMeasures(every="0.1dur")]}, "LogMeasures"),
    ],
)
def test_shares_of_data_that_does_not_know_its_length_are_whole_epochs_and_that_is_said(fields, named, caplog):
    class Endless:
        def __iter__(self):
            return iter(list(Sums()))

    trainer = make_trainer(train_data_loader=Endless(), **fields)
    with caplog.at_level(logging.WARNING):
        trainer.start_training()
    assert named in caplog.text
    assert "Endless has no length" in caplog.text
    assert trainer.global_step == (10 if "max_duration" in fields else 20)

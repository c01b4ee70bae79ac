"""Schedules in shares of a training: the same rates as with numbers of steps, whatever the training is like."""

from __future__ import annotations

import logging
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import Sums, make_trainer

from sonosco_like.errors import UsageError
from sonosco_like.events import Duration, TrainingLength
from sonosco_like.optim import (
    SGD,
    ChainedScheduler,
    CosineAnnealingLR,
    LinearLR,
    Noam,
    OneCycleLR,
    SequentialLR,
    StepLR,
    WarmupHoldDecay,
)
from sonosco_like.serialization import load, save, serializable


@serializable
class SizedSums(Sums):
    """The same batches, and how many they are."""

    def __len__(self) -> int:
        return self.batches


def trainer_of(schedule, *callbacks, **fields):
    rates = []
    look = ("optimizer_step_start", lambda moment: rates.append(moment.context.optimizer.param_groups[0]["lr"]))
    given = {"optimizer": SGD(lr=0.01), "train_data_loader": SizedSums(), "scheduler": schedule, "epochs": 4}
    return make_trainer(look, *callbacks, **{**given, **fields}), rates


def rates_of(schedule, **fields):
    trainer, rates = trainer_of(schedule, **fields)
    trainer.start_training()
    return rates


SAME = [  # of 4 epochs of 5 batches
    (WarmupHoldDecay(total="1dur", warmup="0.1dur", hold="2ep"), WarmupHoldDecay(total=20, warmup=2, hold=10)),
    (WarmupHoldDecay(total="15ba", warmup="3ba"), WarmupHoldDecay(total=15, warmup=3)),
    (Noam(warmup="0.25dur"), Noam(warmup=5)),
    (CosineAnnealingLR(T_max="1dur"), CosineAnnealingLR(T_max=20)),
    (StepLR(step_size="1ep"), StepLR(step_size=5)),
    (OneCycleLR(max_lr=0.02, total_steps="1dur"), OneCycleLR(max_lr=0.02, total_steps=20)),
    (
        SequentialLR(schedulers=[LinearLR(total_iters="0.2dur"), StepLR(step_size="3ba")], milestones=["0.2dur"]),
        SequentialLR(schedulers=[LinearLR(total_iters=4), StepLR(step_size=3)], milestones=[4]),
    ),
    (
        ChainedScheduler(schedulers=[LinearLR(total_iters="0.5dur"), StepLR(step_size=4)]),
        ChainedScheduler(schedulers=[LinearLR(total_iters=10), StepLR(step_size=4)]),
    ),
]


@pytest.mark.parametrize(("shares", "numbers"), SAME, ids=lambda each: type(each).__name__)
def test_lengths_give_the_rates_of_the_numbers_they_stand_for(shares, numbers):
    assert rates_of(shares) == rates_of(numbers)


@pytest.mark.parametrize(
    ("fields", "total"),
    [
        ({"epochs": 2}, 10),
        ({"max_duration": "8ba"}, 8),
        ({"max_duration": "3ep"}, 15),
        ({"max_duration": "0.5dur"}, 10),
        ({"accumulate_gradients": 2}, 12),  # 3 steps in each epoch
        ({"accumulate_gradients": 2, "max_duration": "7ba"}, 4),
        ({"max_duration": "90min"}, 20),
    ],
)
def test_the_whole_is_what_epochs_and_max_duration_leave(fields, total):
    rates = rates_of(WarmupHoldDecay(total="1dur", warmup=1), **fields)
    assert rates == rates_of(WarmupHoldDecay(total=total, warmup=1), **fields)
    assert len(rates) == total


def test_a_limit_in_time_is_said_not_to_count(caplog):
    with caplog.at_level(logging.WARNING):
        rates_of(WarmupHoldDecay(total="1dur", warmup=1), max_duration="90min")
    assert "counts the 4 epochs, because the number of steps in a time is not known beforehand" in caplog.text


@given(
    epochs=st.integers(1, 5), batches=st.integers(1, 9), accumulated=st.integers(1, 4), taken=st.integers(1, 60)
)  # fmt: skip
def test_steps_are_counted_as_the_loop_takes_them(epochs, batches, accumulated, taken):
    steps = pending = 0
    for batch in range(taken):
        pending += 1
        if pending == accumulated or (batch + 1) % batches == 0 or batch + 1 == taken:
            steps, pending = steps + 1, 0
    length = TrainingLength(epochs, batches, accumulated)
    assert length.steps_of(Duration.parse(f"{taken}ba")) == steps
    assert length.steps == epochs * math.ceil(batches / accumulated)


@given(whole=st.integers(1, 1000), share=st.integers(1, 1000))
def test_a_share_is_never_more_than_the_whole_nor_off_by_one(whole, share):
    length = TrainingLength(1, whole)
    assert length.steps_of(Duration(share / 1000, "dur")) == whole * share // 1000


class Endless:
    def __iter__(self):
        return iter(list(Sums()))


@pytest.mark.parametrize("text", ["0.5dur", "2ep"])
def test_a_share_of_data_without_a_length_is_refused_with_the_reason(text):
    trainer, _ = trainer_of(WarmupHoldDecay(total=text, warmup=1), train_data_loader=Endless())
    with pytest.raises(UsageError, match=rf"`total: {text}` cannot be counted in steps: the training data has no leng"):
        trainer.start_training()


def test_a_training_too_short_for_a_number_of_steps_is_refused_with_its_own_length():
    trainer, _ = trainer_of(WarmupHoldDecay(total="1dur", warmup=1000))
    with pytest.raises(UsageError, match=r"In steps of this training: 1dur = \d+. Shares such as 0.1dur fit"):
        trainer.start_training()


def test_data_without_a_length_is_enough_where_batches_are_counted():
    fields = {"train_data_loader": Endless(), "max_duration": "10ba"}
    assert rates_of(WarmupHoldDecay(total="1dur", warmup="2ba"), **fields) == rates_of(
        WarmupHoldDecay(total=10, warmup=2), **fields
    )


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (lambda: WarmupHoldDecay(total="10min"), "`total` counts steps"),
        (lambda: WarmupHoldDecay(total="0.1dur", warmup="0.2dur"), "`total` must be more"),
        (lambda: StepLR(step_size="much"), "is not a duration"),
        (lambda: WarmupHoldDecay(total="1dur").factor(3), "only a training knows how many steps `total: 1dur` are"),
    ],
)
def test_lengths_that_mean_nothing_are_refused(schedule, message):
    with pytest.raises(UsageError, match=message):
        schedule()


@pytest.mark.parametrize("schedule", [shares for shares, _ in SAME], ids=lambda each: type(each).__name__)
def test_a_resumed_run_has_the_rates_and_weights_of_an_unbroken_one(schedule, tmp_path):
    whole, _ = trainer_of(schedule)
    whole.start_training()
    stopped, _ = trainer_of(schedule, max_duration=None)
    stopped.callbacks = [("batch_end", lambda moment: moment.context.global_step == 7 and stopped.stop_training())]
    stopped.start_training()
    stopped.callbacks = []
    save(stopped, tmp_path / "saved")
    resumed = load(tmp_path / "saved")
    resumed.continue_training()
    assert resumed.global_step == whole.global_step == 20
    assert resumed.optimizer.param_groups[0]["lr"] == whole.optimizer.param_groups[0]["lr"]
    ours, theirs = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    "schedule", [WarmupHoldDecay(total="1dur", warmup="0.1dur"), CosineAnnealingLR(T_max="1dur")], ids=["ours", "torch"]
)
def test_a_finished_run_with_more_epochs_goes_on_as_the_longer_schedule_says(schedule, tmp_path, caplog):
    trainer, short = trainer_of(schedule, epochs=2)
    trainer.start_training()
    trainer.callbacks = []
    save(trainer, tmp_path / "saved")
    longer = load(tmp_path / "saved")
    longer.epochs = 4
    rates = []
    longer.callbacks = [
        ("optimizer_step_start", lambda moment: rates.append(moment.context.optimizer.param_groups[0]["lr"]))
    ]
    with caplog.at_level(logging.INFO):
        longer.continue_training()
    assert [*short, *rates] == pytest.approx([*short, *rates_of(schedule, epochs=4)[10:]])
    assert rates[0] > 0.004 > short[-1]
    assert "goes on as if it had had its new length from the beginning" in caplog.text
    assert "1dur = 10 -> 20" in caplog.text
    assert "Learning rate of the next batch" in caplog.text


def test_what_callbacks_took_from_the_rate_stays_taken_when_the_schedule_gets_longer(tmp_path):
    def halve(moment):
        if moment.context.global_step == 4:
            moment.context.optimizer.param_groups[0]["lr"] *= 0.5

    trainer, _ = trainer_of(WarmupHoldDecay(total="1dur", warmup=1), ("batch_end", halve), epochs=2)
    trainer.start_training()
    trainer.callbacks = []
    save(trainer, tmp_path / "saved")
    longer = load(tmp_path / "saved")
    longer.epochs = 3
    longer.parts.prepare()
    expected = 0.01 * WarmupHoldDecay(total=15, warmup=1).factor(10) * 0.5
    assert longer.optimizer.param_groups[0]["lr"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("test_step", "at"), [("0.25dur", [5, 10, 15, 20]), ("0.1dur", [2, 4, 5, 6, 8]), (3, [3, 5, 6])]
)
def test_validations_come_in_shares_of_the_training_and_at_the_ends_of_epochs(test_step, at):
    seen = []
    heard = ("validation_start", lambda moment: seen.append(moment.context.global_step))
    make_trainer(heard, train_data_loader=SizedSums(), test_step=test_step).start_training()
    assert seen[: len(at)] == at


def test_a_share_between_validations_needs_data_with_a_length():
    with pytest.raises(UsageError, match=r"`test_step: 0\.1dur` cannot be counted: the training data has no length"):
        make_trainer(train_data_loader=Endless(), test_step="0.1dur").start_training()

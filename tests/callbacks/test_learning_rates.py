"""Callbacks that lower the learning rate, in real runs."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import constant_error, differences, make_trainer, whole_and_resumed

from sonosco_like.callbacks import ReduceLROnPlateau, ScheduledLearningRateReduction, StepwiseLearningRateReduction
from sonosco_like.callbacks.learning_rates import reduce_learning_rate
from sonosco_like.errors import UsageError
from sonosco_like.events import Stop
from sonosco_like.optim import SGD, ChainedScheduler, ConstantLR, ExponentialLR, LambdaLR, SequentialLR, StepLR
from sonosco_like.serialization import load, serializable


def rates_of(trainer) -> list[float]:
    """Have a trainer note the learning rate of each epoch."""
    rates = []
    trainer.add_callback(("epoch_start", lambda moment: rates.append(moment.context.optimizer.param_groups[0]["lr"])))
    trainer.start_training()
    return rates


def test_stepwise_reduction_comes_every_n_epochs_and_ends_at_the_least_rate():
    reduction = StepwiseLearningRateReduction(epoch_steps=2, reduction_factor=0.5, min_lr=0.3)
    trainer = make_trainer(reduction, optimizer=SGD(lr=1.0), epochs=7, val_data_loader=None)
    assert rates_of(trainer) == pytest.approx([1.0, 1.0, 0.5, 0.5, 0.3, 0.3, 0.3])


def test_scheduled_reduction_comes_after_the_listed_numbers_of_epochs():
    reduction = ScheduledLearningRateReduction(epoch_schedule=[1, 4], reduction_factor=0.1)
    trainer = make_trainer(reduction, optimizer=SGD(lr=1.0), epochs=6, val_data_loader=None)
    assert rates_of(trainer) == pytest.approx([1.0, 0.1, 0.1, 0.1, 0.01, 0.01])


def test_an_interrupted_epoch_is_not_counted_and_one_cut_short_is():
    def stop_first_epoch(scope):
        def stop(moment):
            if moment.context.global_step == 2:
                raise Stop("enough", scope=scope)

        return stop

    for scope, expected in (("epoch", 0.5), ("training", 1.0)):
        reduction = StepwiseLearningRateReduction(epoch_steps=1, reduction_factor=0.5)
        stop = ("batch_end", stop_first_epoch(scope))
        trainer = make_trainer(reduction, stop, optimizer=SGD(lr=1.0), epochs=1, val_data_loader=None)
        trainer.start_training()
        assert trainer.optimizer.param_groups[0]["lr"] == expected


def test_plateau_of_a_constant_measure_halves_the_rate():
    plateau = ReduceLROnPlateau(monitor="val_constant_error", patience=2, factor=0.5)
    trainer = make_trainer(plateau, optimizer=SGD(lr=1.0), metrics=[constant_error], epochs=4, test_step=None)
    assert rates_of(trainer) == [1.0, 1.0, 1.0, 0.5]


@given(
    values=st.lists(st.integers(0, 6).map(float) | st.just(math.nan), min_size=1, max_size=30),
    patience=st.integers(1, 4),
    cooldown=st.integers(0, 3),
    min_delta=st.sampled_from([0.0, 1.0]),
)
def test_plateau_reduces_when_torch_does(values, patience, cooldown, min_delta):
    context = trainer_like(1.0)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=patience - 1, threshold=min_delta, threshold_mode="abs", cooldown=cooldown,
        min_lr=0.1, eps=0.0,
    )  # fmt: skip
    plateau = ReduceLROnPlateau(
        monitor="val_loss", factor=0.5, patience=patience, min_delta=min_delta, cooldown=cooldown, min_lr=0.1
    )
    for value in values:
        plateau.evaluated(value, context)
        reference.step(value)
        assert context.optimizer.param_groups[0]["lr"] == pytest.approx(optimizer.param_groups[0]["lr"])


def trainer_like(*rates: float, scheduler=None) -> SimpleNamespace:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates]
    optimizer = torch.optim.SGD(groups)
    built = scheduler.build(optimizer) if scheduler else None
    return SimpleNamespace(optimizer=optimizer, scheduler=built, metrics=[], callbacks=[], epoch=0, global_step=0)


def test_every_group_has_its_own_rate_and_none_falls_below_the_least():
    context = trainer_like(1.0, 0.3, 0.05)
    reduce_learning_rate(context, 0.5, min_lr=0.2)
    assert [group["lr"] for group in context.optimizer.param_groups] == pytest.approx([0.5, 0.2, 0.05])


@serializable
def warm_up(step: int) -> float:
    """A tenth more with each of the first ten steps."""
    return min(1.0, (step + 1) / 10)


@pytest.mark.parametrize(
    "scheduler",
    [
        LambdaLR(lr_lambda=warm_up),
        ExponentialLR(gamma=0.9),
        StepLR(step_size=3),
        SequentialLR(schedulers=[ConstantLR(factor=0.5, total_iters=2), ExponentialLR(gamma=0.9)], milestones=[4]),
        ChainedScheduler(schedulers=[ConstantLR(factor=0.5, total_iters=2), ExponentialLR(gamma=0.9)]),
    ],
    ids=lambda scheduler: type(scheduler).__name__,
)
def test_what_is_taken_off_the_rate_stays_off_under_a_schedule(scheduler):
    free, reduced = trainer_like(1.0, scheduler=scheduler), trainer_like(1.0, scheduler=copy.deepcopy(scheduler))
    for step in range(12):
        if step == 2:
            reduce_learning_rate(reduced, 0.25, min_lr=0.0)
        for context in (free, reduced):
            context.optimizer.step()
            context.scheduler.step()
        share = reduced.optimizer.param_groups[0]["lr"] / free.optimizer.param_groups[0]["lr"]
        assert share == pytest.approx(0.25 if step >= 2 else 1.0)


@pytest.mark.parametrize("at", [3, 4, 7])
def test_reductions_go_on_exactly_after_a_resume(at, tmp_path):
    callbacks = [
        StepwiseLearningRateReduction(epoch_steps=1, reduction_factor=0.9),
        ReduceLROnPlateau(monitor="val_constant_error", patience=2, cooldown=1),
    ]
    whole, resumed = whole_and_resumed(
        at, tmp_path, *callbacks, metrics=[constant_error], scheduler=LambdaLR(lr_lambda=warm_up)
    )
    assert differences(whole, resumed) == []
    assert whole.optimizer.param_groups[0]["lr"] == resumed.optimizer.param_groups[0]["lr"]


def test_cooldown_is_part_of_the_state(tmp_path):
    plateau = ReduceLROnPlateau(monitor="val_constant_error", patience=1, cooldown=5)
    whole_and_resumed(7, tmp_path, plateau, metrics=[constant_error])
    saved = load(tmp_path / "at-7").callbacks[0]
    assert (saved.best, saved.waited, saved.cooling) == (1.0, 0, 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: StepwiseLearningRateReduction(reduction_factor=1.0),
        lambda: StepwiseLearningRateReduction(epoch_steps=0),
        lambda: ScheduledLearningRateReduction(min_lr=-1.0),
        lambda: ReduceLROnPlateau(factor=0.0),
        lambda: ReduceLROnPlateau(patience=0),
        lambda: ReduceLROnPlateau(cooldown=-1),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(UsageError, match="must be"):
        make()

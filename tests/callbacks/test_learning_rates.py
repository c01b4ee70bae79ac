"""Callbacks that lower the learning rate, in real runs."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_speech import constant_error, differences, speech_trainer, whole_and_resumed

from sonosco_like import optim
from sonosco_like.callbacks import ReduceLROnPlateau, ScheduledLearningRateReduction, StepwiseLearningRateReduction
from sonosco_like.callbacks.learning_rates import reduce_learning_rate
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Stop
from sonosco_like.optim import (
    SGD,
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    Noam,
    OneCycleLR,
    PolynomialLR,
    Scheduler,
    SequentialLR,
    StepLR,
    WarmupHoldDecay,
)
from sonosco_like.optim.learning_rates import start_schedule, step_schedule
from sonosco_like.serialization import load, serializable


def rates_of(trainer) -> list[float]:
    """Have a trainer note the learning rate of each epoch."""
    rates = []
    trainer.add_callback(("epoch_start", lambda moment: rates.append(moment.context.optimizer.param_groups[0]["lr"])))
    trainer.start_training()
    return rates


def test_stepwise_reduction_comes_every_n_epochs_and_ends_at_the_least_rate():
    reduction = StepwiseLearningRateReduction(epoch_steps=2, reduction_factor=0.5, min_lr=0.3)
    trainer = speech_trainer(reduction, optimizer=SGD(lr=1.0), epochs=7, val_data_loader=None)
    assert rates_of(trainer) == pytest.approx([1.0, 1.0, 0.5, 0.5, 0.3, 0.3, 0.3])


def test_scheduled_reduction_comes_after_the_listed_numbers_of_epochs():
    reduction = ScheduledLearningRateReduction(epoch_schedule=[1, 4], reduction_factor=0.1)
    trainer = speech_trainer(reduction, optimizer=SGD(lr=1.0), epochs=6, val_data_loader=None)
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
        trainer = speech_trainer(reduction, stop, optimizer=SGD(lr=1.0), epochs=1, val_data_loader=None)
        trainer.start_training()
        assert trainer.optimizer.param_groups[0]["lr"] == expected


def test_plateau_of_a_constant_measure_halves_the_rate():
    plateau = ReduceLROnPlateau(monitor="val_constant_error", patience=2, factor=0.5)
    trainer = speech_trainer(plateau, optimizer=SGD(lr=1.0), metrics=[constant_error], epochs=4, test_step=None)
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
        plateau.update(value, context)
        reference.step(value)
        assert context.optimizer.param_groups[0]["lr"] == pytest.approx(optimizer.param_groups[0]["lr"])


def trainer_like(*rates: float, scheduler=None) -> SimpleNamespace:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates]
    optimizer = torch.optim.SGD(groups, lr=rates[0], momentum=0.9)
    built = scheduler.build(optimizer) if scheduler else None
    start_schedule(optimizer, built)
    place = {"epoch": 0, "epochs": 1, "global_step": 0, "batches_done": 0, "train_data_loader": []}
    return SimpleNamespace(optimizer=optimizer, scheduler=built, metrics=[], callbacks=[], **place)


def test_every_group_has_its_own_rate_and_none_falls_below_the_least():
    context = trainer_like(1.0, 0.3, 0.05)
    reduce_learning_rate(context, 0.5, min_lr=0.2)
    assert [group["lr"] for group in context.optimizer.param_groups] == pytest.approx([0.5, 0.2, 0.05])


@serializable
def warm_up(step: int) -> float:
    """A tenth more with each of the first ten steps."""
    return min(1.0, (step + 1) / 10)


@serializable
def slower(step: int) -> float:
    """A little less with every step."""
    return 0.97


SCHEDULERS = [
    LambdaLR(lr_lambda=warm_up),
    MultiplicativeLR(lr_lambda=slower),
    ExponentialLR(gamma=0.9),
    StepLR(step_size=3),
    MultiStepLR(milestones=[2, 5]),
    ConstantLR(factor=0.5, total_iters=3),
    LinearLR(total_iters=7),
    PolynomialLR(total_iters=20),
    CosineAnnealingLR(T_max=4),  # zero at the end of an epoch of four steps
    CosineAnnealingLR(T_max=30, eta_min=0.1),
    CosineAnnealingWarmRestarts(T_0=5),
    CyclicLR(base_lr=0.1, max_lr=1.0, step_size_up=3),
    CyclicLR(base_lr=0.1, max_lr=1.0, step_size_up=3, mode="triangular2"),
    OneCycleLR(max_lr=1.0, total_steps=40),
    OneCycleLR(max_lr=1.0, total_steps=40, three_phase=True, anneal_strategy="linear"),
    SequentialLR(schedulers=[ConstantLR(factor=0.5, total_iters=2), ExponentialLR(gamma=0.9)], milestones=[4]),
    SequentialLR(schedulers=[LinearLR(total_iters=3), MultiStepLR(milestones=[2, 2, 7])], milestones=[5]),
    ChainedScheduler(schedulers=[ConstantLR(factor=0.5, total_iters=2), ExponentialLR(gamma=0.9)]),
    WarmupHoldDecay(total=18, warmup=3, hold=6),
    Noam(warmup=5),
]


def named(value: object) -> str | None:
    return type(value).__name__ if isinstance(value, Scheduler) else None


def test_every_scheduler_there_is_is_tried():
    known = {getattr(optim, name) for name in optim.__all__}
    records = {each for each in known if isinstance(each, type) and issubclass(each, Scheduler)}
    assert {type(scheduler) for scheduler in SCHEDULERS} == records - {Scheduler, optim.Schedule}


def reduce_by_callback(context) -> None:
    reduce_learning_rate(context, 0.1, min_lr=0.0)


def reduce_by_hand(context) -> None:
    for group in context.optimizer.param_groups:
        group["lr"] *= 0.1


@pytest.mark.parametrize("reduce", [reduce_by_callback, reduce_by_hand])
@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=named)
def test_what_is_taken_off_the_rate_stays_off_under_every_schedule(scheduler, reduce):
    free, reduced = trainer_like(1.0, 0.5, scheduler=scheduler), trainer_like(1.0, 0.5, scheduler=scheduler)
    taken_off = 1.0
    for step in range(16):
        for context in (free, reduced):
            context.optimizer.step()
            step_schedule(context.optimizer, context.scheduler)
        untouched = [group["lr"] for group in free.optimizer.param_groups]
        if step % 4 == 3 and (reduce is reduce_by_callback or min(untouched) > 1e-9):
            taken_off *= 0.1
            reduce(reduced)
        assert [group["lr"] for group in reduced.optimizer.param_groups] == pytest.approx(
            [rate * taken_off for rate in untouched], rel=1e-9, abs=1e-18
        )
        momenta = [[group["momentum"] for group in each.optimizer.param_groups] for each in (free, reduced)]
        assert momenta[0] == momenta[1]
    assert taken_off < 0.05


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=named)
def test_a_run_reduced_tenfold_each_epoch_has_a_tenth_of_the_rate_in_the_next(scheduler):
    def rates(*callbacks):
        found = []
        look = ("batch_start", lambda moment: found.append(moment.context.optimizer.param_groups[0]["lr"]))
        fields = {"optimizer": SGD(lr=1e-3, momentum=0.9), "scheduler": copy.deepcopy(scheduler), "epochs": 4}
        speech_trainer(*callbacks, look, val_data_loader=None, **fields).start_training()
        return found

    untouched = rates()
    reduced = rates(StepwiseLearningRateReduction(epoch_steps=1, reduction_factor=0.1))
    expected = [rate * 0.1 ** (place // 4) for place, rate in enumerate(untouched)]
    assert reduced == pytest.approx(expected, rel=1e-9, abs=1e-18)


def test_a_rate_that_was_put_to_zero_for_a_while_comes_back():
    context = trainer_like(1.0, scheduler=OneCycleLR(max_lr=1.0, total_steps=40))
    (group,) = context.optimizer.param_groups
    before, group["lr"] = group["lr"], 0.0
    context.optimizer.step()
    step_schedule(context.optimizer, context.scheduler)
    assert group["lr"] == 0.0
    group["lr"] = before
    context.optimizer.step()
    step_schedule(context.optimizer, context.scheduler)
    assert group["lr"] > 0


def test_the_least_rate_holds_under_a_schedule():
    context = trainer_like(1.0, scheduler=OneCycleLR(max_lr=1.0, total_steps=40))
    for _ in range(5):
        reduce_learning_rate(context, 0.1, min_lr=0.01)
    assert context.optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


@pytest.mark.parametrize("at", [3, 4, 5])
@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=named)
def test_reductions_under_every_schedule_survive_a_resume_bit_for_bit(scheduler, at, tmp_path):
    callbacks = [StepwiseLearningRateReduction(epoch_steps=1, reduction_factor=0.1), ByHand()]
    fields = {"optimizer": SGD(lr=1e-3, momentum=0.9), "scheduler": copy.deepcopy(scheduler), "val_data_loader": None}
    whole, resumed = whole_and_resumed(at, tmp_path, *callbacks, **fields)
    assert differences(whole, resumed) == []
    assert whole.optimizer.param_groups[0]["lr"] == resumed.optimizer.param_groups[0]["lr"]


@serializable
class ByHand(AbstractCallback):
    """Halves the rate once, as users write it."""

    def __call__(self, epoch, step, performance_measures, context):
        if context.global_step == 3:
            for group in context.optimizer.param_groups:
                group["lr"] *= 0.5


@pytest.mark.parametrize("scheduler", [LambdaLR(lr_lambda=warm_up), ExponentialLR(gamma=0.9)], ids=named)
def test_what_a_former_version_saved_goes_on_as_it_was(scheduler):
    """It took reductions off the schedule's own rates, and knew of no factor."""
    old, free = trainer_like(1.0, scheduler=scheduler), trainer_like(1.0, scheduler=scheduler)
    del old.optimizer.param_groups[0]["lr_factor"]
    for context in (old, free):
        for _ in range(3):
            context.optimizer.step()
            context.scheduler.step()
    old.scheduler.base_lrs = [rate * 0.1 for rate in old.scheduler.base_lrs]
    old.optimizer.param_groups[0]["lr"] *= 0.1
    for taken_off in (0.1, 0.1, 0.01, 0.01):
        if taken_off == 0.01 and old.optimizer.param_groups[0]["lr"] > 0.02 * free.optimizer.param_groups[0]["lr"]:
            reduce_learning_rate(old, 0.1, min_lr=0.0)
        for context in (old, free):
            context.optimizer.step()
            step_schedule(context.optimizer, context.scheduler)
        share = old.optimizer.param_groups[0]["lr"] / free.optimizer.param_groups[0]["lr"]
        assert share == pytest.approx(taken_off)


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

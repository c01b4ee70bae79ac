"""Sampling: tight batches, nothing lost, every batch a pure function of (durations, seed, epoch, rank, world size)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.data.sampling import BatchPlan, BucketSampler
from sonosco_like.errors import DataError, UsageError

LENGTHS = st.lists(st.floats(0.0, 20.0), min_size=0, max_size=120).map(np.array)
SAMPLERS = st.builds(
    lambda limits, **others: BucketSampler(**limits, **others),
    limits=st.fixed_dictionaries({"batch_seconds": st.floats(20.0, 100.0)}, optional={"batch_size": st.integers(1, 9)})
    | st.fixed_dictionaries({"batch_size": st.integers(1, 9)}),
    buckets=st.integers(1, 12),
    shuffle=st.booleans(),
    sorted_first_epoch=st.booleans(),
)


def batches(plan: BatchPlan) -> list[list[int]]:
    return [plan[position].tolist() for position in range(len(plan))]


def librispeech_like(count: int) -> np.ndarray:
    """Lengths with the shape of LibriSpeech's training set: a peak at 14 s, a flat part below, few above 17 s."""
    random = np.random.default_rng(7)
    peak, flat, tail = random.normal(14.3, 1.2, count), random.uniform(1.3, 13, count), random.uniform(15, 24.5, count)
    kind = random.random(count)
    return np.clip(np.where(kind < 0.62, peak, np.where(kind < 0.98, flat, tail)), 1.3, 24.5)


@given(lengths=LENGTHS, sampler=SAMPLERS, seed=st.integers(0, 99), epoch=st.integers(0, 3), world=st.integers(1, 4))
def test_ranks_partition_the_epoch(lengths: np.ndarray, sampler: Any, seed: int, epoch: int, world: int) -> None:
    plans = [sampler.plan(lengths, seed, epoch, rank, world) for rank in range(world)]
    assert len({len(plan) for plan in plans}) == 1
    handed_out = [index for plan in plans for batch in batches(plan) for index in batch]
    left_out = plans[0].left_out.tolist()
    assert sorted(handed_out + left_out) == list(range(len(lengths)))
    assert len(left_out) < world
    if left_out and handed_out:
        assert all(len(batch) == 1 for plan in plans for batch in batches(plan)), "a batch could have lent one"


@given(lengths=LENGTHS, sampler=SAMPLERS, seed=st.integers(0, 99), world=st.integers(1, 4))
def test_no_batch_is_empty_or_beyond_its_limits(lengths: np.ndarray, sampler: Any, seed: int, world: int) -> None:
    for rank in range(world):
        plan = sampler.plan(lengths, seed, 1, rank, world)
        for position, batch in enumerate(batches(plan)):
            padded = len(batch) * lengths[batch].max()
            assert 1 <= len(batch) <= (sampler.batch_size or len(lengths))
            assert padded <= (sampler.batch_seconds or np.inf) * (1 + 1e-9)
            assert plan.padded_seconds[position] == padded


@given(lengths=LENGTHS, sampler=SAMPLERS, seed=st.integers(0, 99), epoch=st.integers(0, 3), world=st.integers(1, 4))
def test_a_plan_is_a_pure_function(lengths: np.ndarray, sampler: Any, seed: int, epoch: int, world: int) -> None:
    before = lengths.copy()
    np.random.seed(0)
    global_state = np.random.get_state()[1:3]
    first = sampler.plan(lengths, seed, epoch, world - 1, world)
    again = sampler.plan(lengths, seed, epoch, world - 1, world)
    assert batches(first) == batches(again)
    assert np.array_equal(lengths, before)
    np.testing.assert_equal(np.random.get_state()[1:3], global_state)


def test_the_order_does_not_change_from_version_to_version() -> None:
    """Runs of last year must still be resumed: if this fails, the order of every corpus has changed."""
    plan = BucketSampler(batch_seconds=12.0, buckets=3).plan(np.arange(1.0, 13.0), 5, 2)
    assert batches(plan) == [[10], [9], [11], [0, 1], [7], [2, 4], [8], [6], [5, 3]]


@given(seed=st.integers(0, 1000))
def test_epochs_and_seeds_differ_in_order_but_not_in_length(seed: int) -> None:
    lengths = librispeech_like(300)
    sampler = BucketSampler(batch_seconds=120.0)
    plans = [sampler.plan(lengths, seed, 0), sampler.plan(lengths, seed, 1), sampler.plan(lengths, seed + 1, 0)]
    assert len({str(batches(plan)) for plan in plans}) == 3
    assert len({len(plan) for plan in plans}) == 1
    assert len({frozenset(map(frozenset, batches(plan))) for plan in plans}) == 3, "the same utterances stay together"


@pytest.mark.parametrize("count", [10_000, 100_000])
@pytest.mark.parametrize("budget", [200.0, 400.0, 800.0])
@pytest.mark.parametrize("buckets", [10, 20, 50])
def test_librispeech_lengths_waste_little(count: int, budget: float, buckets: int) -> None:
    plan = BucketSampler(batch_seconds=budget, buckets=buckets).plan(librispeech_like(count), 0, 1)
    assert plan.padding_share <= 0.05
    assert plan.budget_use is not None
    assert plan.budget_use >= 0.98


@given(parts=st.integers(1, 200), budget=st.floats(0.1, 1000.0))
def test_lengths_that_divide_the_budget_are_not_lost_to_rounding(parts: int, budget: float) -> None:
    for length in (budget / parts, np.nextafter(budget / parts, 0), min(np.nextafter(budget / parts, np.inf), budget)):
        plan = BucketSampler(batch_seconds=budget).plan(np.full(2 * parts, length), 0, 0)
        assert len(plan.order) == 2 * parts
        assert plan.padded_seconds.max() <= budget * (1 + 1e-9)


def test_the_shares_are_what_they_say() -> None:
    lengths = np.array([1.0, 2.0, 4.0])
    plan = BatchPlan(np.array([1, 0, 2]), np.array([0, 2, 3]), np.zeros(0, dtype=np.int64), lengths, batch_seconds=5.0)
    assert plan.padding_share == pytest.approx(1 - 7 / 8)
    assert plan.budget_use == pytest.approx((4 + 4) / 2 / 5)
    assert plan.report() == "3 utterances (0.00 h) in 2 batches, 12.5% padding, 80.0% of the budget used"


@pytest.mark.parametrize("world", [1, 3])
def test_the_first_epoch_can_go_from_short_to_long(world: int) -> None:
    lengths = librispeech_like(500)
    sampler = BucketSampler(batch_seconds=100.0, sorted_first_epoch=True)
    longest = [[lengths[batch].max() for batch in batches(sampler.plan(lengths, 3, e, 0, world))] for e in (0, 1)]
    assert np.mean(np.diff(longest[0]) >= 0) > 0.9
    assert longest[0][0] < 4
    assert np.mean(np.diff(longest[1]) >= 0) < 0.7


def test_without_shuffling_every_epoch_is_the_same_and_tight() -> None:
    lengths = librispeech_like(2000)
    sampler = BucketSampler(batch_seconds=200.0, shuffle=False)
    assert batches(sampler.plan(lengths, 1, 1)) == batches(sampler.plan(lengths, 2, 5))
    assert sampler.plan(lengths, 1, 1).padding_share < 0.02


def test_batches_of_the_ranks_in_one_round_cost_about_the_same() -> None:
    lengths = librispeech_like(5000)
    plans = [BucketSampler(batch_seconds=200.0).plan(lengths, 1, 1, rank, 4) for rank in range(4)]
    longest = np.array([[lengths[batch].max() for batch in batches(plan)] for plan in plans])
    assert np.quantile(np.ptp(longest, axis=0) / longest.max(axis=0), 0.9) < 0.1


def test_batch_size_alone_makes_batches_of_that_size() -> None:
    plan = BucketSampler(batch_size=7).plan(librispeech_like(100), 0, 1)
    sizes = sorted(len(batch) for batch in batches(plan))
    assert sizes == [100 % 7, *[7] * 14]
    assert plan.budget_use is None


def test_an_utterance_beyond_the_budget_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(DataError, match=r"1 of 3 utterances exceed .* 31\.00 s, .*index 1\..*max_duration"):
        BucketSampler(batch_seconds=30.0).plan(np.array([3.0, 31.0, 4.0]), 0, 0)


@pytest.mark.parametrize("lengths", [[1.0, -1.0], [1.0, np.nan], [np.inf]])
def test_lengths_that_are_none_are_refused(lengths: list[float]) -> None:
    with pytest.raises(DataError, match="numbers of seconds"):
        BucketSampler(batch_size=2).plan(np.array(lengths), 0, 0)


@pytest.mark.parametrize(
    "options",
    [{}, {"batch_seconds": 0.0}, {"batch_seconds": np.inf}, {"batch_size": 0}, {"batch_size": 1, "buckets": 0}],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"`(batch|buckets)"):
        BucketSampler(**options)


@pytest.mark.parametrize("arguments", [(-1, 0, 0, 1), (0, -1, 0, 1), (0, 0, 1, 1), (0, 0, 0, 0)])
def test_arguments_that_make_no_sense_are_refused(arguments: tuple[int, int, int, int]) -> None:
    with pytest.raises(UsageError, match="`rank`"):
        BucketSampler(batch_size=2).plan(np.ones(3), *arguments)


def test_a_batch_outside_of_the_plan_is_an_index_error() -> None:
    plan = BucketSampler(batch_size=2).plan(np.ones(3), 0, 0)
    for position in (-1, len(plan)):
        with pytest.raises(IndexError):
            plan[position]

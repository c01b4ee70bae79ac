"""Intervals checked against distributions that are known."""

from __future__ import annotations

import numpy as np
import pytest

from sonosco_like.errors import UsageError
from sonosco_like.evaluation.bootstrap import interval_of, resampled_rates, sums_by


def test_the_interval_of_a_binomial_share_is_the_known_one():
    share, count = 0.2, 2000
    errors = np.arange(count) < share * count
    interval = interval_of(resampled_rates([errors], np.ones(count, int), 5000, 0)[0])
    deviation = np.sqrt(share * (1 - share) / count)
    assert interval.mean == pytest.approx(share, abs=0.1 * deviation)
    assert interval.deviation == pytest.approx(deviation, rel=0.05)
    assert (interval.low, interval.high) == pytest.approx(
        (share - 1.96 * deviation, share + 1.96 * deviation), abs=0.15 * deviation
    )


def test_the_deviation_of_a_ratio_is_the_known_one():
    """Words per utterance differ; the delta method gives the deviation of errors over words."""
    random = np.random.default_rng(1)
    lengths = random.integers(1, 30, 3000)
    errors = random.binomial(lengths, 0.1)
    rate = errors.sum() / lengths.sum()
    expected = np.sqrt(np.sum((errors - rate * lengths) ** 2)) / lengths.sum()
    interval = interval_of(resampled_rates([errors], lengths, 5000, 0)[0])
    assert interval.deviation == pytest.approx(expected, rel=0.05)


def test_intervals_hold_the_true_rate_as_often_as_they_say():
    random = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        lengths = random.integers(3, 15, 150)
        interval = interval_of(resampled_rates([random.binomial(lengths, 0.15)], lengths, 400, 0)[0], level=0.9)
        held += interval.low <= 0.15 <= interval.high
    assert 0.84 <= held / 200 <= 0.96


def test_the_same_seed_gives_the_same_resamples_and_another_seed_others():
    lengths = np.arange(1, 50)
    rates = [resampled_rates([lengths % 4], lengths, 50, seed) for seed in (3, 3, 4)]
    assert np.array_equal(rates[0], rates[1])
    assert not np.array_equal(rates[0], rates[2])


def test_systems_are_drawn_alike():
    errors = np.arange(40) % 3
    rates = resampled_rates([errors, errors + 1], np.full(40, 10), 100, 0)
    assert np.allclose(rates[1] - rates[0], 0.1)


def test_speakers_that_differ_make_the_interval_wider():
    speakers = [f"speaker {number % 10}" for number in range(1000)]
    errors = np.array([5 if number % 10 < 3 else 0 for number in range(1000)])
    lengths = np.full(1000, 10)
    by_utterance = interval_of(resampled_rates([errors], lengths, 1000, 0)[0])
    sums = sums_by(speakers, errors), sums_by(speakers, lengths)
    by_speaker = interval_of(resampled_rates([sums[0]], sums[1], 1000, 0)[0])
    assert by_speaker.deviation > 5 * by_utterance.deviation


def test_sums_are_those_of_each_group():
    assert sums_by(["b", "a", "b"], [1, 2, 4]).tolist() == [5, 2]


def test_a_bootstrap_of_nothing_is_refused():
    with pytest.raises(UsageError, match="at least one resample and one utterance"):
        resampled_rates([[]], [], 10, 0)
    with pytest.raises(UsageError, match="got 0 resamples"):
        resampled_rates([[1]], [1], 0, 0)


def test_utterances_without_words_are_no_division_by_zero():
    assert resampled_rates([[2, 2]], [0, 0], 3, 0).tolist() == [[4.0, 4.0, 4.0]]

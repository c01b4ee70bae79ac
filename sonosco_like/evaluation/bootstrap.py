"""How far an error rate could be off: the bootstrap (Efron 1979; for word error rates Bisani and Ney 2004).

The corpus is drawn anew many times, with replacement, and the rate computed each time; how these rates scatter is how
the rate of another corpus of this kind would. Drawn are utterances, or all utterances of a speaker together: speakers
differ more than their utterances do, and only drawing speakers says how the recogniser does with new ones.

Shape suffixes: R resamples, U units that are drawn (utterances or speakers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sonosco_like.errors import UsageError

Counts = NDArray[np.int64]
Rates = NDArray[np.float64]
_CHUNK = 200_000  # drawn units at once: they stay in the processor's cache


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a rate lies with a probability of `level`, and mean and standard deviation of the resamples."""

    low: float
    high: float
    mean: float
    deviation: float
    level: float


def resampled_rates(errors: Sequence[Sequence[int]], lengths: Sequence[int], resamples: int, seed: int) -> Rates:
    """rates_SR of so many resamples, for each of S systems that were tested on the same units.

    `errors` holds for each system the errors in each unit, `lengths` what they are counted over. All systems are drawn
    alike, so that their rates can be compared resample by resample.
    """
    errors_SU = np.asarray(errors, dtype=np.int64)
    lengths_U = np.asarray(lengths, dtype=np.int64)
    if resamples < 1 or errors_SU.ndim != 2 or errors_SU.shape[1] != len(lengths_U) or not len(lengths_U):
        raise UsageError(
            f"A bootstrap needs at least one resample and one utterance, and errors for each utterance; "
            f"got {resamples} resamples, {errors_SU.shape} errors and {len(lengths_U)} lengths."
        )
    random = np.random.default_rng(seed)
    units = len(lengths_U)
    rates_SR = np.empty((len(errors_SU), resamples))
    step = max(1, _CHUNK // units)
    for begin in range(0, resamples, step):
        count = min(step, resamples - begin)
        drawn_RU = random.integers(0, units, (count, units))
        words_R = lengths_U.take(drawn_RU).sum(axis=1)
        for system, errors_U in enumerate(errors_SU):
            rates_SR[system, begin : begin + count] = errors_U.take(drawn_RU).sum(axis=1) / np.maximum(words_R, 1)
    return rates_SR


def interval_of(rates_R: Rates, level: float = 0.95) -> Interval:
    """The middle part of the rates of all resamples."""
    low, high = np.quantile(rates_R, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), float(rates_R.mean()), float(rates_R.std()), level)


def sums_by(groups: Sequence[str], values: Sequence[int]) -> Counts:
    """The sum of the values of each group, in the order in which groups are met."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    places = np.array([numbers[name] for name in groups], dtype=np.int64)
    return np.bincount(places, weights=np.asarray(values, dtype=np.float64)).astype(np.int64)

"""Confidence intervals of error rates by the bootstrap (Efron 1979; for word error rates Bisani and Ney 2004).

Many corpora are drawn from the corpus, with replacement, and the rate of each is computed; the spread of these rates
estimates how the rate varies between corpora of this kind. Utterances are drawn, or all utterances of a speaker
together: speakers differ more than their utterances, and only drawing speakers shows what to expect of new ones.

Shape suffixes: R resamples, U units that are drawn (utterances or speakers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonosco_like.errors import UsageError
from sonosco_like.evaluation.results import Result, total

Counts = NDArray[np.int64]
Rates = NDArray[np.float64]
_CHUNK = 200_000  # drawn units at once: they stay in the processor's cache


@dataclass(frozen=True, slots=True)
class Interval:
    """The interval in which a rate lies with a probability of `level`; mean and standard deviation of the resamples."""

    low: float
    high: float
    mean: float
    deviation: float
    level: float


def resampled_rates(errors: Sequence[Sequence[int]], lengths: Sequence[int], resamples: int, seed: int) -> Rates:
    """The rates_SR of R resamples, for each of S systems that were tested on the same units.

    `errors` holds the errors of each system in each unit, `lengths` the reference length of each unit. The same units
    are drawn for all systems, so that their rates can be compared resample by resample.
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
    """The interval with the middle part of the rates of all resamples."""
    low, high = np.quantile(rates_R, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), float(rates_R.mean()), float(rates_R.std()), level)


def sums_by(groups: Sequence[str], values: Sequence[int]) -> Counts:
    """The sum of the values of each group, in the order in which the groups first occur."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    places = np.array([numbers[name] for name in groups], dtype=np.int64)
    return np.bincount(places, weights=np.asarray(values, dtype=np.float64)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two recognisers on the same utterances. A negative `difference` means that the first makes fewer errors.

    `p_value` is two-sided: twice the share of resamples in which the difference is on the other side of zero.
    """

    name: str
    wer: float
    other_wer: float
    interval: Interval
    p_value: float
    utterances: int

    @property
    def difference(self) -> float:
        """The word error rate less that of the other."""
        return self.wer - self.other_wer

    @property
    def is_real(self) -> bool:
        """Whether zero is outside the interval of the difference."""
        return not self.interval.low <= 0.0 <= self.interval.high

    def in_words(self) -> str:
        """The verdict as a sentence."""
        points = f"{abs(self.difference):.2%}".replace("%", " points")
        span = f"{self.interval.low:+.2%} to {self.interval.high:+.2%}, p = {self.p_value:.3f}"
        if not self.is_real:
            return f"No real difference to {self.name} can be seen ({points}; {span})."
        better = "fewer" if self.difference < 0 else "more"
        return f"This one makes {points} {better} word errors than {self.name}, and the difference is real ({span})."

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "against": self.name,
            "wer": self.wer,
            "other_wer": self.other_wer,
            "difference": self.difference,
            "difference_interval": [self.interval.low, self.interval.high],
            "p_value": self.p_value,
            "is_real": self.is_real,
            "utterances": self.utterances,
        }


def compare(
    ours: Sequence[Result], others: Sequence[Result], name: str, bootstraps: int, seed: int, level: float = 0.95
) -> Comparison:
    """A paired bootstrap (Bisani and Ney 2004) over the utterances that both recognisers have."""
    known = {result.id: result for result in others}
    pairs = [(result, known[result.id]) for result in ours if result.id in known]
    if not pairs:
        raise UsageError(f"This evaluation and {name} have no utterance in common: evaluate both on one manifest.")
    changed = next((mine for mine, other in pairs if mine.words.reference_length != other.words.reference_length), None)
    if changed is not None:
        raise UsageError(f"The text of {changed.id} is not the same here as for {name}: evaluate both on one manifest.")
    errors = [[mine.words.errors for mine, _ in pairs], [other.words.errors for _, other in pairs]]
    lengths = [mine.words.reference_length for mine, _ in pairs]
    rates_SR = resampled_rates(errors, lengths, bootstraps, seed)
    differences_R = rates_SR[0] - rates_SR[1]
    tail = min(float(np.mean(differences_R >= 0)), float(np.mean(differences_R <= 0)))
    return Comparison(
        name=name,
        wer=total(mine.words for mine, _ in pairs).rate,
        other_wer=total(other.words for _, other in pairs).rate,
        interval=interval_of(differences_R, level),
        p_value=min(1.0, 2 * max(tail, 1 / (bootstraps + 1))),
        utterances=len(pairs),
    )

"""Whether one recogniser is really better than another, or was only lucky with this corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sonosco_like.errors import UsageError
from sonosco_like.evaluation.bootstrap import Interval, interval_of, resampled_rates
from sonosco_like.evaluation.results import Result, total


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two recognisers on the same utterances. A negative `difference` means that ours makes fewer errors.

    `p_value` is two-sided: how often a resampled difference lies as far on the other side of zero, twice.
    """

    name: str
    wer: float
    other_wer: float
    interval: Interval
    p_value: float
    utterances: int

    @property
    def difference(self) -> float:
        """Our word error rate less that of the other."""
        return self.wer - self.other_wer

    @property
    def is_real(self) -> bool:
        """Whether zero is outside of the interval of the difference."""
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
    """A paired bootstrap (Bisani and Ney 2004) over the utterances that both have heard."""
    known = {result.id: result for result in others}
    pairs = [(result, known[result.id]) for result in ours if result.id in known]
    if not pairs:
        raise UsageError(f"There is no utterance that both this evaluation and {name} have heard.")
    changed = next((mine for mine, other in pairs if mine.words.reference_length != other.words.reference_length), None)
    if changed is not None:
        raise UsageError(f"The text of {changed.id} is not the same here as for {name}: compare on one manifest.")
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

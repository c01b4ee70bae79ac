"""Mixing: how much each of several corpora gives to an epoch, and which of its utterances.

What an epoch holds is a pure function of (sizes of the corpora, weights, seed, epoch). The sampler divides it into
batches afterwards, as it divides the rows of a single manifest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sonosco_like.data.sampling import BatchPlan, Indices, Seconds, shuffle
from sonosco_like.errors import DataError, UsageError
from sonosco_like.serialization import serializable


@serializable
class WeightedManifest:
    """One of several manifests, and its weight: an epoch has utterances of each manifest in proportion to the weights.

    Without weights each utterance is in every epoch once.
    """

    manifest: Path
    weight: float | None = None

    def __post_init__(self) -> None:
        if self.weight is not None and not 0 < self.weight < math.inf:
            raise UsageError(f"The `weight` of {self.manifest} must be a number above 0, got {self.weight}.")


def check_mixture(mixed: Sequence[WeightedManifest]) -> None:
    """Refuse an empty mixture, a manifest that is in it twice, and weights of some manifests only."""
    if not mixed:
        raise UsageError("`manifest` is an empty list: give one path, or several as {manifest: PATH, weight: NUMBER}.")
    places: dict[Path, Path] = {}
    for each in mixed:
        same = places.setdefault(each.manifest.resolve(), each.manifest)
        if same is not each.manifest:
            raise UsageError(
                f"{each.manifest} is in the list twice. For more of its utterances raise its `weight` instead."
            )
    without = [str(each.manifest) for each in mixed if each.weight is None]
    if without and len(without) < len(mixed):
        raise UsageError(f"Give each manifest a `weight`, or none of them: {', '.join(without)} has none.")


@dataclass(frozen=True, eq=False)
class Drawn:
    """The utterances of an epoch, some several times, and how often the corpus of each was gone through before."""

    rows: Indices
    passes: Indices


class Mixture:
    """Draws the utterances of an epoch; `sources` has the number of the corpus of each utterance.

    An epoch has as many utterances as there are. Each corpus gives the same number to every epoch, by its weight. It is
    gone through pass after pass, and a pass may begin in one epoch and end in another. Each pass has its own order, and
    an utterance is drawn again only after all others of its corpus.
    """

    def __init__(self, sources: Indices, mixed: Sequence[WeightedManifest]) -> None:
        sizes = np.bincount(sources, minlength=len(mixed)).tolist()
        weights = [1.0 if each.weight is None else each.weight for each in mixed]
        self.counts = share_out(len(sources), weights)
        for each, size, count in zip(mixed, sizes, self.counts, strict=True):
            if not size:
                raise DataError(f"No utterance of {each.manifest} can be used, but the mixture needs some of it.")
            if not count:
                raise DataError(
                    f"An epoch of {len(sources)} utterances would have none of {each.manifest}: raise its `weight`, "
                    f"which is {each.weight:g} of {math.fsum(weights):g}."
                )
        self._drawn: tuple[tuple[int, int], Drawn] | None = None
        self._members = [np.flatnonzero(sources == corpus) for corpus in range(len(mixed))]

    def draw(self, seed: int, epoch: int) -> Drawn:
        """The utterances of one epoch; the last ones drawn are kept."""
        if self._drawn is None or self._drawn[0] != (seed, epoch):
            self._drawn = (seed, epoch), self._draw(seed, epoch)
        return self._drawn[1]

    def rows_at_most(self) -> Indices:
        """Each utterance as often as an epoch can have it at most, so that no batch of any epoch is a surprise."""
        most = [-(-count // len(members)) + 1 for members, count in zip(self._members, self.counts, strict=True)]
        return np.concatenate([np.repeat(each, times) for each, times in zip(self._members, most, strict=True)])

    def _draw(self, seed: int, epoch: int) -> Drawn:
        rows, passes = [], []
        for corpus, (members, count) in enumerate(zip(self._members, self.counts, strict=True)):
            begin, end, size = epoch * count, (epoch + 1) * count, len(members)
            first, last = begin // size, (end - 1) // size
            for number in sorted({first, last}):  # of these only a part may be in the epoch
                order = shuffle(members, np.random.PCG64(np.random.SeedSequence([seed, corpus, number])))
                rows.append(order[max(begin - number * size, 0) : end - number * size])
                passes.append(np.full(len(rows[-1]), number))
            whole = np.arange(first + 1, last)  # the sampler shuffles, so the order of a whole pass does not matter
            rows.append(np.tile(members, len(whole)))
            passes.append(np.repeat(whole, size))
        return Drawn(np.concatenate(rows), np.concatenate(passes))


def share_out(count: int, weights: Sequence[float]) -> list[int]:
    """A number divided by weights; what the rounding leaves goes to the largest remainders."""
    total = math.fsum(weights)
    exact = [count * (weight / total) for weight in weights]
    shares = [int(each) for each in exact]
    by_remainder = sorted(range(len(exact)), key=lambda place: (shares[place] - exact[place], place))
    for place in by_remainder[: count - sum(shares)]:
        shares[place] += 1
    return shares


def plan_of_drawn(plan: BatchPlan, drawn: Drawn, durations: Seconds) -> BatchPlan:
    """A plan in terms of all utterances, made of one in terms of those that were drawn."""
    order, passes = drawn.rows[plan.order], drawn.passes[plan.order]
    return replace(plan, order=order, left_out=drawn.rows[plan.left_out], durations=durations, passes=passes)

"""Which utterances make a batch: this is decided from their lengths alone, before any audio is opened.

A plan is a pure function of (durations, weights of a mixture, seed, epoch, rank, world size). Batch k of an epoch is
entry k of its plan; nothing that came before is replayed.

How a plan is made:
1. Lengths are divided into buckets. With a budget of `batch_seconds`, a bucket's upper edge is the budget divided by a
   whole number n, and its batches hold n utterances: padded to the edge they fill the budget. The edges are those that
   make the fewest batches (dynamic programming over a few hundred candidates).
2. Utterances are shuffled inside their bucket and taken in rounds of one batch for each rank, so that the ranks always
   work on similar lengths. Utterances that do not fill a round move up into the next longer bucket.
3. The last round, which is not full, is shared evenly among the ranks. The rounds are shuffled.

An epoch has as many utterances as there are rows. Of a mixture of corpora, each corpus gives its share of them
(`mixing`), and the steps above divide what was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sonosco_like.errors import DataError, UsageError
from sonosco_like.serialization import serializable

Indices = NDArray[np.int64]
Seconds = NDArray[np.float64]
_QUANTILES = 300
_MOST_BUCKETS = 64
_BATCHES_IN_BUCKET = 3


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """The batches of one epoch for one rank; `plan[k]` are the indices of batch k.

    `passes` are there for a mixture: for each utterance in `order`, how often its corpus was gone through before.
    """

    order: Indices
    edges: Indices
    left_out: Indices
    durations: Seconds
    batch_seconds: float | None = None
    passes: Indices | None = None

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __getitem__(self, position: int) -> Indices:
        if not 0 <= position < len(self):
            raise IndexError(f"batch {position} of {len(self)}")
        return self.order[self.edges[position] : self.edges[position + 1]]

    def passes_of(self, position: int) -> Indices | None:
        """The `passes` of a batch."""
        return None if self.passes is None else self.passes[self.edges[position] : self.edges[position + 1]]

    @cached_property
    def padded_seconds(self) -> Seconds:
        """The cost of each batch: its longest utterance times the number of its utterances."""
        if len(self) == 0:
            return np.zeros(0)
        longest = np.maximum.reduceat(self.durations[self.order], self.edges[:-1])
        return longest * np.diff(self.edges)

    @property
    def seconds(self) -> float:
        """Seconds of audio in the epoch."""
        return float(self.durations[self.order].sum())

    @property
    def padding_share(self) -> float:
        """The part of all frames that is padding."""
        padded = float(self.padded_seconds.sum())
        return 1.0 - self.seconds / padded if padded else 0.0

    @property
    def budget_use(self) -> float | None:
        """Padded seconds as a share of what the batches may hold; None without a limit in seconds."""
        if self.batch_seconds is None or len(self) == 0:
            return None
        return float(self.padded_seconds.mean()) / self.batch_seconds

    def report(self) -> str:
        """A sentence about utterances, batches and padding."""
        use = "" if self.budget_use is None else f", {self.budget_use:.1%} of the budget used"
        lost = f"; {len(self.left_out)} utterances did not fit the ranks evenly" if len(self.left_out) else ""
        return (
            f"{len(self.order)} utterances ({self.seconds / 3600:.2f} h) in {len(self)} batches, "
            f"{self.padding_share:.1%} padding{use}{lost}"
        )


@serializable
class BucketSampler:
    """Batches of similar lengths, limited in padded seconds, in number of utterances, or in both.

    `buckets` is the least number of buckets; a corpus that can fill each with a few batches to shuffle has more.
    `sorted_first_epoch` goes from short to long in epoch 0 (SortaGrad, Amodei et al. 2015). Without `shuffle` every
    epoch does, and the batches have the least padding: the choice for evaluation.

    Each utterance is in one batch of one rank. There is one exception: if the last utterances are fewer than the ranks,
    and every batch before holds a single one, they are in `plan.left_out`, which differs between epochs.
    """

    batch_seconds: float | None = None
    batch_size: int | None = None
    buckets: int = 20
    shuffle: bool = True
    sorted_first_epoch: bool = False

    def __post_init__(self) -> None:
        if self.batch_seconds is None and self.batch_size is None:
            raise UsageError("BucketSampler needs `batch_seconds` or `batch_size`, to know when a batch is full.")
        if self.batch_seconds is not None and not 0 < self.batch_seconds < np.inf:
            raise UsageError(f"`batch_seconds` must be a positive number of seconds, got {self.batch_seconds}.")
        if self.batch_size is not None and self.batch_size < 1:
            raise UsageError(f"`batch_size` must be at least 1, got {self.batch_size}.")
        if self.buckets < 1:
            raise UsageError(f"`buckets` must be at least 1, got {self.buckets}.")

    def plan(self, durations: Seconds, seed: int, epoch: int, rank: int = 0, world_size: int = 1) -> BatchPlan:
        """The batches of one epoch for one of `world_size` ranks; all ranks have the same number of batches."""
        if not 0 <= rank < world_size or seed < 0 or epoch < 0:
            raise UsageError(
                f"`rank` must be one of 0 to world_size - 1, `seed` and `epoch` must not be negative; "
                f"got rank {rank} of {world_size}, seed {seed}, epoch {epoch}."
            )
        durations = np.asarray(durations, dtype=np.float64)
        self._refuse_too_long(durations)
        shuffle = self.shuffle and not (self.sorted_first_epoch and epoch == 0)
        # numpy promises that these raw bits stay the same from version to version, not that `permutation` does
        random = np.random.PCG64(np.random.SeedSequence([seed, epoch])) if shuffle else None
        filled = _add_last_round(self._fill_rounds(durations, random, world_size), world_size)
        order = _order_of_rounds(filled, durations, random, world_size)
        return BatchPlan(*_take_batches(filled, order * world_size + rank), filled.rest, durations, self.batch_seconds)

    def largest_batches(self, durations: Seconds) -> list[Indices]:
        """Of each bucket, short to long, the batch with its longest utterances, which needs most memory."""
        by_length = np.argsort(durations, kind="stable")
        return [by_length[max(0, end - size) : end] for _, end, size in self._buckets(durations[by_length])]

    def _fill_rounds(self, durations: Seconds, random: np.random.PCG64 | None, world_size: int) -> _Rounds:
        """Full rounds of batches from each bucket, short to long, and the utterances left at the end."""
        by_length = np.argsort(durations, kind="stable")
        order, sizes = [], []
        rest = by_length[:0]
        for begin, end, size in self._buckets(durations[by_length]):
            bucket = np.concatenate([rest, shuffle(by_length[begin:end], random)])
            full = len(bucket) // (size * world_size) * size * world_size
            order.append(bucket[:full])
            sizes.append(np.full(full // size, size))
            rest = bucket[full:]
        return _Rounds(np.concatenate([rest[:0], *order]), np.concatenate([rest[:0], *sizes]), rest)

    def _buckets(self, lengths: Seconds) -> list[tuple[int, int, int]]:
        """The begin and the end of each bucket among the sorted lengths, and the size of its batches."""
        if len(lengths) == 0:
            return []
        edges, sizes = self._candidates(lengths)
        ends = np.searchsorted(lengths, edges, side="right")
        batches = int((np.diff(ends, prepend=0) * 1000 // sizes).sum()) // 1000
        buckets = max(self.buckets, min(batches // _BATCHES_IN_BUCKET, _MOST_BUCKETS))
        chosen = _cheapest_edges(edges, ends, buckets)
        begins = [0, *ends[chosen[:-1]]]
        return [(int(begin), int(ends[k]), int(sizes[k])) for begin, k in zip(begins, chosen, strict=True)]

    def _candidates(self, lengths: Seconds) -> tuple[Seconds, Indices]:
        """Possible upper edges of buckets, rising, and the size of the batches below each.

        Only whole numbers, comparisons and single operations decide, so that every machine finds the same edges.
        """
        count = min(_QUANTILES, len(lengths))
        quantiles = np.unique(lengths[np.arange(1, count + 1) * len(lengths) // count - 1])
        most = self.batch_size or len(lengths)
        if self.batch_seconds is None:
            return quantiles, np.full(len(quantiles), most)
        least = int(self.batch_seconds / max(lengths[-1], self.batch_seconds / most))
        if self.batch_seconds / least < lengths[-1]:  # the division before was rounded up
            least -= 1
        sizes = np.array(_growing_sizes(least, most)[::-1])
        edges = self.batch_seconds / sizes
        short = quantiles[quantiles < edges[0]] if self.batch_size else quantiles[:0]  # where the number is the limit
        return np.concatenate([short, edges]), np.concatenate([np.full(len(short), most), sizes])

    def _refuse_too_long(self, durations: Seconds) -> None:
        if len(durations) and not (durations.min() >= 0 and durations.max() < np.inf):
            raise DataError("Durations must be numbers of seconds that are not negative.")
        limit = self.batch_seconds
        if limit is None or len(durations) == 0 or durations.max() <= limit:
            return
        too_long = np.flatnonzero(durations > limit)
        raise DataError(
            f"{len(too_long)} of {len(durations)} utterances exceed `batch_seconds` ({limit:g} s); the longest "
            f"has {durations.max():.2f} s, the first is at index {too_long[0]}. Raise `batch_seconds`, or set the "
            f"dataset's `max_duration` to at most {limit:g} with `on_bad: skip`."
        )


def plan_remaining(
    sampler: BucketSampler,
    durations: Seconds,
    seed: int,
    epoch: int,
    rank: int,
    world_size: int,
    shares: Sequence[Sequence[int]],
) -> BatchPlan:
    """The plan for the rest of an epoch that began with other numbers of ranks.

    `shares` has an entry for each earlier number of ranks in this epoch: the number of batches that each rank has done.
    The plan is that of an epoch which has only the remaining utterances.
    """
    left = np.arange(len(durations))
    for done in shares:
        seen = [sampler.plan(durations[left], seed, epoch, each, len(done)) for each in range(len(done))]
        taken = [plan.order[: plan.edges[min(count, len(plan))]] for plan, count in zip(seen, done, strict=True)]
        left = np.delete(left, np.concatenate(taken))
    plan = sampler.plan(durations[left], seed, epoch, rank, world_size)
    return BatchPlan(left[plan.order], plan.edges, left[plan.left_out], durations, plan.batch_seconds)


@dataclass(frozen=True, eq=False)
class _Rounds:
    """Batches of the given sizes, one after the other in `order`; `world_size` batches are a round."""

    order: Indices
    sizes: Indices
    rest: Indices


def _growing_sizes(first: int, last: int) -> list[int]:
    """Whole numbers from the first to the last: dense at the beginning, then each 2 % larger than the one before."""
    numbers = [first]
    while numbers[-1] < last:
        numbers.append(min(last, numbers[-1] + max(1, numbers[-1] // 50)))
    return numbers


def _cheapest_edges(edges: Seconds, ends: Indices, buckets: int) -> list[int]:
    """The choice of at most `buckets` edges with the smallest sum of all lengths, padded to their edge.

    `ends` counts the utterances up to each edge. The last edge, which covers all of them, is always chosen.
    """
    begins = np.concatenate([[0], ends[:-1]])
    # price[i, j]: all utterances above edge i - 1 and up to edge j are padded to edge j
    price = (ends[None, :] - begins[:, None]) * edges[None, :]
    price[np.tril_indices(len(ends), -1)] = np.inf
    best = price[0]
    origins = []
    for _ in range(buckets - 1):
        totals = np.vstack([best[None, :], best[:-1, None] + price[1:]])
        origins.append(totals.argmin(axis=0))
        best = totals.min(axis=0)
    chosen = [len(ends) - 1]
    for origin in reversed(origins):
        previous = int(origin[chosen[0]]) - 1
        if previous >= 0:
            chosen.insert(0, previous)
    return chosen


def _add_last_round(filled: _Rounds, world_size: int) -> _Rounds:
    """Add a last round of the utterances left, one batch for each rank; if they are too few, full batches lend some."""
    rest, order, sizes = filled.rest, filled.order, filled.sizes
    lenders = np.argsort(-sizes, kind="stable")[: max(world_size - len(rest), 0)]
    lenders = lenders[sizes[lenders] > 1]
    if len(rest) == 0 or len(rest) + len(lenders) < world_size:
        return filled
    lent = np.cumsum(sizes)[lenders] - 1
    rest = np.concatenate([rest, order[lent]])
    sizes = sizes - np.isin(np.arange(len(sizes)), lenders)
    share, more = divmod(len(rest), world_size)
    last = np.where(np.arange(world_size) < more, share + 1, share)
    return _Rounds(np.concatenate([np.delete(order, lent), rest]), np.concatenate([sizes, last]), rest[:0])


def _order_of_rounds(filled: _Rounds, durations: Seconds, random: np.random.PCG64 | None, world_size: int) -> Indices:
    rounds = np.arange(len(filled.sizes) // world_size)
    if random is not None or len(rounds) == 0:
        return shuffle(rounds, random)
    begins = (np.cumsum(filled.sizes) - filled.sizes)[::world_size]
    return np.argsort(np.maximum.reduceat(durations[filled.order], begins), kind="stable")


def _take_batches(filled: _Rounds, batches: Indices) -> tuple[Indices, Indices]:
    """The utterances of some batches, one after the other, and the edges between the batches."""
    sizes = filled.sizes[batches]
    edges = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    begins = (np.cumsum(filled.sizes) - filled.sizes)[batches]
    return filled.order[np.repeat(begins - edges[:-1], sizes) + np.arange(edges[-1])], edges


def shuffle(indices: Indices, random: np.random.PCG64 | None) -> Indices:
    """The indices in an order drawn from the generator; without one in the order in which they are."""
    if random is None:
        return indices
    keys: NDArray[np.uint64] = random.random_raw(len(indices))
    return indices[np.argsort(keys, kind="stable")]

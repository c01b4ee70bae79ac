"""Pieces of many recordings in batches of similar length, handed back in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from sonosco_like.data.sampling import BucketSampler

T = TypeVar("T")
R = TypeVar("R")
_MOST_IN_BATCH = 64
_BATCHES_IN_ROUND = 8
_FILLED = 0.9  # of a batch by the first round: the rest is for padding


def in_batches(
    items: Iterable[T],
    seconds_of: Callable[[T], float],
    work: Callable[[list[T]], list[R]],
    batch_seconds: float,
) -> Iterator[tuple[T, R]]:
    """Each item with what `work` makes of it.

    Items are gathered in rounds, sorted by length within a round, and worked on in batches of up to `batch_seconds`
    with padding. The first round is a single batch, so that the first result is not long in coming.
    """
    gathered: list[T] = []
    seconds, limit = 0.0, _FILLED * batch_seconds
    for item in items:
        gathered.append(item)
        seconds += seconds_of(item)
        if seconds >= limit:
            yield from _round(gathered, seconds_of, work, batch_seconds)
            gathered, seconds, limit = [], 0.0, min(4 * limit, _BATCHES_IN_ROUND * batch_seconds)
    yield from _round(gathered, seconds_of, work, batch_seconds)


def _round(
    items: list[T], seconds_of: Callable[[T], float], work: Callable[[list[T]], list[R]], batch_seconds: float
) -> Iterator[tuple[T, R]]:
    if not items:
        return
    lengths = np.array([seconds_of(item) for item in items])
    limit = max(batch_seconds, float(lengths.max()))
    plan = BucketSampler(batch_seconds=limit, batch_size=_MOST_IN_BATCH, shuffle=False).plan(lengths, 0, 0)
    results: dict[int, R] = {}
    for number in range(len(plan)):
        indices = plan[number].tolist()
        results.update(zip(indices, work([items[index] for index in indices]), strict=True))
    yield from ((item, results[index]) for index, item in enumerate(items))

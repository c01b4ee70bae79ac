"""How the batches of an epoch are dealt out to several processes, each example to one of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

Batches = Sequence[Any]


def deal(batches: Batches, rank: int, world_size: int, divisible: bool, even: bool) -> list[Any]:
    """The batches of one of `world_size` processes: one of each round.

    What does not fill a round is divided anew among all, if batches are lists of examples and so `divisible`. Is that
    impossible, it is left out where all must have equally many batches (`even`), and else given to the first processes.
    """
    full = len(batches) // world_size * world_size
    rounds, rest = list(batches[:full]), list(batches[full:])
    if rest and divisible:
        rounds, rest = _divided(rounds, rest, world_size)
    return rounds[rank::world_size] + ([] if even else rest[rank : rank + 1])


def left_out(batches: Batches, world_size: int, divisible: bool) -> int:
    """How many examples, or batches that cannot be divided, no process gets where all must have equally many."""
    dealt = [deal(batches, rank, world_size, divisible, even=True) for rank in range(world_size)]
    if not divisible:
        return len(batches) - sum(map(len, dealt))
    return sum(map(len, batches)) - sum(len(batch) for share in dealt for batch in share)


def _divided(rounds: list[Any], rest: list[Any], world_size: int) -> tuple[list[Any], list[Any]]:
    """One more round of what is left, or two instead of the last full one if it is less than one for each process."""
    examples = [example for batch in rest for example in batch]
    if len(examples) >= world_size:
        return [*rounds, *_split(examples, world_size)], []
    examples = [example for batch in (*rounds[-world_size:], examples) for example in batch]
    if not rounds or len(examples) < 2 * world_size:
        return rounds, rest
    return [*rounds[:-world_size], *_split(examples, 2 * world_size)], []


def _split(examples: list[Any], parts: int) -> list[list[Any]]:
    """So many parts of the same length, or one less."""
    share, more = divmod(len(examples), parts)
    edges = [part * share + min(part, more) for part in range(parts + 1)]
    return [examples[begin:end] for begin, end in pairwise(edges)]

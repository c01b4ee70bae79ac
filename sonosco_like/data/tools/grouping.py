"""Dividing utterances into disjoint parts: which belong together, and who goes where.

Pure functions of keys, seconds and a seed: neither the order of the rows nor the machine changes the result.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence

from sonosco_like.errors import UsageError

SHARES: Mapping[str, float] = {"train": 0.8, "val": 0.1, "test": 0.1}
"""How utterances are divided where nobody says otherwise."""


def join_groups(keys: Iterable[Sequence[Hashable]]) -> list[int]:
    """A group number for each row: rows that share any key are in one group, also by way of other rows."""
    parents: list[int] = []
    owner: dict[Hashable, int] = {}
    for row, row_keys in enumerate(keys):
        parents.append(row)
        for key in row_keys:
            parents[_root(parents, row)] = _root(parents, owner.setdefault(key, row))
    return [_root(parents, row) for row in range(len(parents))]


def share_out(seconds: Mapping[str, float], shares: Mapping[str, float], seed: int) -> dict[str, str]:
    """A part for each group, so that the parts' seconds come near to their shares, and no part is empty.

    Groups come in an order drawn from the seed, and each goes to the part that lacks most of its share.
    """
    _check_shares(shares)
    wanted = {part: share for part, share in shares.items() if share > 0}
    if len(seconds) < len(wanted):
        raise UsageError(
            f"{len(wanted)} parts ({', '.join(wanted)}) need at least {len(wanted)} groups of utterances that belong "
            f"together; there are {len(seconds)}. Ask for fewer parts, or divide by something finer."
        )
    targets = {part: share / math.fsum(wanted.values()) * math.fsum(seconds.values()) for part, share in wanted.items()}
    filled = dict.fromkeys(wanted, 0.0)
    parts: dict[str, str] = {}
    for group in sorted(seconds, key=lambda group: _draw(group, seed)):
        part = min(wanted, key=lambda part: (filled[part] / max(targets[part], 1e-9), wanted[part]))
        parts[group] = part
        filled[part] += max(seconds[group], 1e-9)
    return parts


def _root(parents: list[int], row: int) -> int:
    while parents[row] != row:
        parents[row] = parents[parents[row]]
        row = parents[row]
    return row


def _draw(group: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{group}".encode()).digest()


def _check_shares(shares: Mapping[str, float]) -> None:
    if not all(0 <= share < float("inf") for share in shares.values()) or sum(shares.values()) <= 0:
        raise UsageError(f"Shares must not be negative, and at least one must be above 0; got {dict(shares)}.")

"""Dividing a manifest into parts that share no speaker, no text, or neither.

Pure functions of keys, seconds and a seed: neither the order of the rows nor the machine changes the result.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from sonosco_like.data.manifest import Manifest, write_manifest
from sonosco_like.data.tools.files import claim_file
from sonosco_like.errors import DataError, UsageError
from sonosco_like.records import Utterance
from sonosco_like.serialization import serializable

SHARES: Mapping[str, float] = {"train": 0.8, "val": 0.1, "test": 0.1}
"""The default shares of the parts."""


def join_groups(keys: Iterable[Sequence[Hashable]]) -> list[int]:
    """A group number for each row: rows that share any key are in one group, also through other rows."""
    parents: list[int] = []
    owner: dict[Hashable, int] = {}
    for row, row_keys in enumerate(keys):
        parents.append(row)
        for key in row_keys:
            parents[_root(parents, row)] = _root(parents, owner.setdefault(key, row))
    return [_root(parents, row) for row in range(len(parents))]


def assign_groups(seconds: Mapping[str, float], shares: Mapping[str, float], seed: int) -> dict[str, str]:
    """A part for each group, so that the seconds of the parts are close to their shares, and no part is empty.

    Groups come in an order drawn from the seed, and each goes to the part that is farthest below its share.
    """
    _check_shares(shares)
    wanted = {part: share for part, share in shares.items() if share > 0}
    if len(seconds) < len(wanted):
        raise UsageError(
            f"{len(wanted)} parts ({', '.join(wanted)}) need at least {len(wanted)} groups of utterances that belong "
            f"together; there are {len(seconds)}. Choose fewer parts, or divide by something finer."
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


By: TypeAlias = Literal["speaker", "text", "both"]


def split_manifest(
    source: Path,
    folder: Path,
    by: By = "speaker",
    shares: Mapping[str, float] = SHARES,
    seed: int = 0,
    force: bool = False,
) -> dict[str, Path]:
    """Write one manifest per part with a share into a folder.

    The same seed gives the same parts, whatever the order of the rows.
    """
    outputs = {part: folder / f"{part}.jsonl" for part, share in shares.items() if share > 0}
    for output in outputs.values():
        claim_file(output, force)
    parts = split_utterances(list(Manifest.read(source)), by, shares, seed)
    return {part: write_manifest(outputs[part], rows) for part, rows in parts.items()}


def split_utterances(
    utterances: Sequence[Utterance], by: By, shares: Mapping[str, float], seed: int
) -> dict[str, list[Utterance]]:
    """The utterances of each part, in their order. The parts share no speaker and/or no text, as chosen by `by`."""
    parts: dict[str, list[Utterance]] = {part: [] for part, share in shares.items() if share > 0}
    for utterance, part in zip(utterances, assign_parts(utterances, by, shares, seed), strict=True):
        parts[part].append(utterance)
    return parts


def assign_parts(utterances: Sequence[Utterance], by: By, shares: Mapping[str, float], seed: int) -> list[str]:
    """The part of each utterance."""
    if by not in get_args(By):
        raise UsageError(f"`by` must be one of {', '.join(get_args(By))}, got {by!r}.")
    keys = [_keys(utterance, by) for utterance in utterances]
    groups = join_groups(keys)
    names: dict[int, str] = {}
    seconds: dict[int, list[float]] = defaultdict(list)
    for utterance, key, group in zip(utterances, map("\n".join, keys), groups, strict=True):
        names[group] = min(key, names.get(group, key))  # the same, whichever row comes first
        seconds[group].append(utterance.duration)
    chosen = assign_groups({names[group]: math.fsum(durations) for group, durations in seconds.items()}, shares, seed)
    return [chosen[names[group]] for group in groups]


def _keys(utterance: Utterance, by: By) -> list[str]:
    keys = []
    if by in ("speaker", "both"):
        if utterance.speaker is None:
            raise DataError(
                f"The utterance {utterance.id!r} has no speaker, so its part cannot be chosen by speaker. "
                "Split by text, or make the manifest with speakers (`sonosco data manifest --speaker`)."
            )
        keys.append(f"speaker {utterance.speaker}")
    if by in ("text", "both"):
        keys.append(f"text {' '.join(utterance.text.casefold().split())}")
    return keys


@serializable
class ManifestPart:
    """The utterances of a manifest that one dataset keeps, while other datasets keep the rest.

    Datasets that differ in `keep`, and agree in the manifest, `shares`, `by` and `seed`, have no speaker and/or no text
    in common, as chosen by `by`. Every part has about its share of the seconds.
    """

    keep: str
    shares: dict[str, float] = field(default_factory=lambda: {"train": 0.9, "val": 0.1})
    by: By = "speaker"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.shares.get(self.keep, 0.0) > 0:
            raise UsageError(f"`keep` must be a part with a share: {', '.join(self.shares)}; got {self.keep!r}.")

    def rows_of(self, utterances: Sequence[Utterance]) -> NDArray[np.int64]:
        """The indices of the utterances that belong to this part."""
        parts = assign_parts(utterances, self.by, self.shares, self.seed)
        return np.flatnonzero(np.array([part == self.keep for part in parts], dtype=bool))

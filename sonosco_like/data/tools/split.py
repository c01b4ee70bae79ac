"""One manifest as several that share no speaker, no text, or neither."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from sonosco_like.data.manifest import Manifest, write_manifest
from sonosco_like.data.tools.grouping import SHARES, join_groups, share_out
from sonosco_like.data.tools.outputs import claim_file
from sonosco_like.errors import DataError, UsageError
from sonosco_like.records import Utterance

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
    """The utterances of each part, in their order. The parts share no speaker and/or no text, as `by` says."""
    parts: dict[str, list[Utterance]] = {part: [] for part, share in shares.items() if share > 0}
    for utterance, part in zip(utterances, parts_of(utterances, by, shares, seed), strict=True):
        parts[part].append(utterance)
    return parts


def parts_of(utterances: Sequence[Utterance], by: By, shares: Mapping[str, float], seed: int) -> list[str]:
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
    chosen = share_out({names[group]: math.fsum(durations) for group, durations in seconds.items()}, shares, seed)
    return [chosen[names[group]] for group in groups]


def _keys(utterance: Utterance, by: By) -> list[str]:
    keys = []
    if by in ("speaker", "both"):
        if utterance.speaker is None:
            raise DataError(
                f"The utterance {utterance.id!r} has no speaker, so nobody knows who may not be in two parts. "
                "Split by text, or make the manifest with speakers (`sonosco data manifest --speaker`)."
            )
        keys.append(f"speaker {utterance.speaker}")
    if by in ("text", "both"):
        keys.append(f"text {' '.join(utterance.text.casefold().split())}")
    return keys

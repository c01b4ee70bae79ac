"""Several manifests as one."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sonosco_like.data.manifest import Manifest, write_manifest
from sonosco_like.data.tools.files import claim_file
from sonosco_like.errors import UsageError
from sonosco_like.records import Utterance


@dataclass
class MergeCounts:
    """The result of a merge: rows written, duplicates left out, and rows that got another id."""

    rows: int = 0
    duplicates: int = 0
    renamed: int = 0


def merge_manifests(sources: Sequence[Path], output: Path, force: bool = False) -> MergeCounts:
    """Write the rows of all sources into one manifest, in order.

    The same part of the same recording is taken once, from the first manifest that has it. If two different rows have
    one id, the second one gets a number at its end.
    """
    if not sources:
        raise UsageError("Name at least one manifest to merge.")
    claim_file(output, force)
    manifests = [Manifest.read(source) for source in sources]
    merged = MergeCounts()
    write_manifest(output, merge_utterances(itertools.chain.from_iterable(manifests), merged))
    return merged


def merge_utterances(utterances: Iterable[Utterance], merged: MergeCounts) -> Iterator[Utterance]:
    """The utterances for one manifest: no part of a recording twice, no id twice."""
    return _make_ids_unique(_drop_duplicates(utterances, merged), merged)


def _drop_duplicates(utterances: Iterable[Utterance], merged: MergeCounts) -> Iterator[Utterance]:
    folder = functools.cache(Path.resolve)
    seen: set[tuple[Path, str, float]] = set()
    for utterance in utterances:
        audio = Path(utterance.audio_filepath)
        piece = (folder(audio.parent), audio.name, utterance.offset)
        if piece in seen:
            merged.duplicates += 1
        else:
            seen.add(piece)
            yield utterance


def _make_ids_unique(utterances: Iterable[Utterance], merged: MergeCounts) -> Iterator[Utterance]:
    used: set[str] = set()
    for utterance in utterances:
        own, number = utterance.id, 1
        while own in used:
            number += 1
            own = f"{utterance.id}#{number}"
        used.add(own)
        merged.rows += 1
        merged.renamed += own != utterance.id
        yield replace(utterance, id=own)

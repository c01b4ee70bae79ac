"""What all public corpora have in common: source, rows, lengths, splits, manifests. Each only says where things are."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from sonosco_like.data.corpora.download import Download
from sonosco_like.data.corpora.sources import DOWNLOADS, UNPACKED, unpack_downloads, unpack_source
from sonosco_like.data.corpora.target import claim_target, write_manifests
from sonosco_like.data.tools.grouping import SHARES, share_out
from sonosco_like.data.tools.measuring import measure_recordings
from sonosco_like.data.tools.progress import Progress, no_progress
from sonosco_like.errors import DataError
from sonosco_like.records import Utterance

SPLIT_OF_PART = {"train": "train", "dev": "val", "test": "test"}
"""What most corpora call their parts, and what these are here."""

_PRECEDENCE = ("test", "val", "train")  # who keeps a speaker that is in several official splits


@dataclass(frozen=True, slots=True)
class Row:
    """One utterance as its corpus has it. Without a `split`, its speaker is assigned to one.

    Without a `duration`, it is all of the recording from `offset` on.
    """

    id: str
    path: Path
    text: str
    speaker: str
    split: str | None = None
    offset: float = 0.0
    duration: float | None = None


@dataclass
class Prepared:
    """What came of a corpus: its manifests, and what was left out with the reason."""

    manifests: dict[str, Path] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


class Corpus(ABC):
    """A public corpus."""

    expected: ClassVar[str]
    """What a folder with the corpus holds, for the message when it does not."""

    shares: ClassVar[Mapping[str, float]] = SHARES
    """How the speakers of rows without a split are shared out."""

    @abstractmethod
    def downloads(self) -> Sequence[Download]:
        """The archives to get from the web; an error that says what to do if they cannot be had there."""

    @abstractmethod
    def rows(self, folder: Path) -> Iterator[Row]:
        """All utterances of the unpacked corpus, which lies somewhere below a folder."""

    def is_in(self, folder: Path) -> bool:
        """Whether a folder holds the unpacked corpus."""
        return next(self.rows(folder), None) is not None


def prepare_corpus(
    corpus: Corpus,
    target: Path,
    source: Path | None = None,
    seed: int = 0,
    force: bool = False,
    progress: Progress = no_progress,
) -> Prepared:
    """Write `train`, `val` and `test` manifests of a corpus into a folder, as far as it has these parts.

    `source` is an archive, a folder of archives, or an unpacked folder, whose recordings stay where they are. Without
    it the corpus is downloaded. A run that was interrupted goes on where it was.
    """
    claim_target(target, force, kept=(DOWNLOADS, UNPACKED))
    if source is None:
        folders = unpack_downloads(target, corpus.downloads(), progress)
    else:
        folders = unpack_source(target, source, corpus.is_in, force, progress)
    prepared = Prepared()
    found = [row for folder in folders for row in corpus.rows(folder)]
    rows = list(_measured(list(_with_text(found, prepared)), prepared, progress))
    if not rows:
        raise DataError(_nothing_found(corpus, source or target, prepared))
    splits = _by_split(_disjoint(_with_split(rows, corpus.shares, seed), prepared))
    prepared.manifests = write_manifests(target, splits)
    return prepared


def _with_text(rows: Iterable[Row], prepared: Prepared) -> Iterator[Row]:
    for row in rows:
        if row.text:
            yield row
        else:
            prepared.left_out.append(f"{row.id} has no text.")


def _measured(rows: Sequence[Row], prepared: Prepared, progress: Progress) -> Iterator[Row]:
    """Rows with their durations, cut to the end of the recording. A header is read only if it is needed for that."""
    unknown = dict.fromkeys(row.path for row in rows if row.duration is None or row.offset)
    lengths = dict(measure_recordings(list(unknown), progress))
    for row in rows:
        length = lengths[row.path] if row.path in lengths else _length_said_by_corpus(row.path)
        if isinstance(length, DataError):
            prepared.left_out.append(str(length))
        elif length <= row.offset:
            prepared.left_out.append(f"{row.id} begins at {row.offset:.2f} s, but {row.path} ends at {length:.2f} s.")
        else:
            rest = length - row.offset
            yield replace(row, duration=rest if row.duration is None else min(row.duration, rest))


def _length_said_by_corpus(path: Path) -> float | DataError:
    """No limit, if the recording is there at all."""
    return math.inf if path.is_file() else DataError(f"{path} does not exist.")


def _with_split(rows: Sequence[Row], shares: Mapping[str, float], seed: int) -> list[Row]:
    """Rows with a split: the corpus' own, or one drawn for the speaker."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.split is None:
            seconds[row.speaker].append(row.duration or 0.0)
    if not seconds:
        return list(rows)
    drawn = share_out({speaker: math.fsum(lengths) for speaker, lengths in seconds.items()}, shares, seed)
    return [replace(row, split=row.split or drawn[row.speaker]) for row in rows]


def _disjoint(rows: Sequence[Row], prepared: Prepared) -> Iterator[Row]:
    """Rows whose speaker is in no other split; one that is in several stays in the one that measures."""
    owner: dict[str, str] = {}
    for split in _PRECEDENCE:
        for speaker in {row.speaker for row in rows if row.split == split}:
            owner.setdefault(speaker, split)
    for row in rows:
        if row.split == owner[row.speaker]:
            yield row
        else:
            prepared.left_out.append(f"{row.id} is in {row.split}, but its speaker is in {owner[row.speaker]} too.")


def _by_split(rows: Iterable[Row]) -> dict[str, list[Utterance]]:
    splits: dict[str, list[Utterance]] = defaultdict(list)
    for row in rows:
        assert row.split is not None
        assert row.duration is not None
        splits[row.split].append(
            Utterance(row.id, str(row.path), round(row.duration, 6), row.text, row.speaker, row.offset)
        )
    return splits


def _nothing_found(corpus: Corpus, folder: Path, prepared: Prepared) -> str:
    if prepared.left_out:
        return f"None of the {len(prepared.left_out)} utterances in {folder} can be used: {prepared.left_out[0]}"
    return f"There is no {type(corpus).__name__} in {folder}. Expected somewhere below it: {corpus.expected}."

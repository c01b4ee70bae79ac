"""The steps that all corpora share: source, rows, lengths, splits, manifests. A corpus class only lists its files."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from sonosco_like.data.corpora.download import Download, download_file
from sonosco_like.data.corpora.extraction import ARCHIVE_SUFFIXES, archive_stem, extract_archive, is_archive
from sonosco_like.data.manifest import write_manifest
from sonosco_like.data.tools.files import measure_recordings
from sonosco_like.data.tools.split import SHARES, assign_groups
from sonosco_like.errors import DataError, UsageError
from sonosco_like.progress import Progress, no_progress
from sonosco_like.records import Utterance

SPLIT_OF_PART = {"train": "train", "dev": "val", "test": "test"}
"""The names of the parts in most corpora, and our names for them."""

_PRECEDENCE = ("test", "val", "train")  # the split that keeps a speaker who is in several official splits


@dataclass(frozen=True, slots=True)
class CorpusUtterance:
    """One utterance of a corpus. Without a `split`, its speaker is assigned to one.

    Without a `duration`, the utterance is all of the recording from `offset` on.
    """

    id: str
    path: Path
    text: str
    speaker: str
    split: str | None = None
    offset: float = 0.0
    duration: float | None = None


@dataclass
class PreparedCorpus:
    """The result for a corpus: its manifests, and what was left out with the reason."""

    manifests: dict[str, Path] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


class Corpus(ABC):
    """A public corpus."""

    expected: ClassVar[str]
    """A file that every folder with the corpus holds, for the error message if it is missing."""

    shares: ClassVar[Mapping[str, float]] = SHARES
    """The shares of the splits for speakers of rows without a split."""

    @abstractmethod
    def downloads(self) -> Sequence[Download]:
        """The archives to download; an error with the remedy if they cannot be downloaded."""

    @abstractmethod
    def rows(self, folder: Path) -> Iterator[CorpusUtterance]:
        """All utterances of the unpacked corpus, which is somewhere below a folder."""

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
) -> PreparedCorpus:
    """Write `train`, `val` and `test` manifests of a corpus into a folder, for the parts that it has.

    `source` is an archive, a folder of archives, or an unpacked folder, whose recordings stay where they are. Without
    it the corpus is downloaded. A run that was interrupted continues where it was.
    """
    claim_target(target, force, kept=(DOWNLOADS, UNPACKED))
    if source is None:
        folders = unpack_downloads(target, corpus.downloads(), progress)
    else:
        folders = unpack_source(target, source, corpus.is_in, force, progress)
    prepared = PreparedCorpus()
    found = [row for folder in folders for row in corpus.rows(folder)]
    rows = list(_measure(list(_keep_with_text(found, prepared)), prepared, progress))
    if not rows:
        raise DataError(_nothing_found_message(corpus, source or target, prepared))
    splits = _group_by_split(_keep_disjoint_speakers(_assign_splits(rows, corpus.shares, seed), prepared))
    prepared.manifests = write_manifests(target, splits)
    return prepared


def _keep_with_text(rows: Iterable[CorpusUtterance], prepared: PreparedCorpus) -> Iterator[CorpusUtterance]:
    for row in rows:
        if row.text:
            yield row
        else:
            prepared.left_out.append(f"{row.id} has no text.")


def _measure(
    rows: Sequence[CorpusUtterance], prepared: PreparedCorpus, progress: Progress
) -> Iterator[CorpusUtterance]:
    """Rows with their durations, cut to the end of the recording. A header is read only if this needs it."""
    unknown = dict.fromkeys(row.path for row in rows if row.duration is None or row.offset)
    lengths = dict(measure_recordings(list(unknown), progress))
    for row in rows:
        length = lengths[row.path] if row.path in lengths else _unlimited_length(row.path)
        if isinstance(length, DataError):
            prepared.left_out.append(str(length))
        elif length <= row.offset:
            prepared.left_out.append(f"{row.id} begins at {row.offset:.2f} s, but {row.path} ends at {length:.2f} s.")
        else:
            rest = length - row.offset
            yield replace(row, duration=rest if row.duration is None else min(row.duration, rest))


def _unlimited_length(path: Path) -> float | DataError:
    """No limit, if the recording exists: the corpus itself gives the length."""
    return math.inf if path.is_file() else DataError(f"{path} does not exist.")


def _assign_splits(rows: Sequence[CorpusUtterance], shares: Mapping[str, float], seed: int) -> list[CorpusUtterance]:
    """Rows with a split: that of the corpus, or one drawn for the speaker."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.split is None:
            seconds[row.speaker].append(row.duration or 0.0)
    if not seconds:
        return list(rows)
    drawn = assign_groups({speaker: math.fsum(lengths) for speaker, lengths in seconds.items()}, shares, seed)
    return [replace(row, split=row.split or drawn[row.speaker]) for row in rows]


def _keep_disjoint_speakers(rows: Sequence[CorpusUtterance], prepared: PreparedCorpus) -> Iterator[CorpusUtterance]:
    """Rows whose speaker is in no other split; `test` and `val` keep a speaker who is in several."""
    owner: dict[str, str] = {}
    for split in _PRECEDENCE:
        for speaker in {row.speaker for row in rows if row.split == split}:
            owner.setdefault(speaker, split)
    for row in rows:
        if row.split == owner[row.speaker]:
            yield row
        else:
            prepared.left_out.append(f"{row.id} is in {row.split}, but its speaker is in {owner[row.speaker]} too.")


def _group_by_split(rows: Iterable[CorpusUtterance]) -> dict[str, list[Utterance]]:
    splits: dict[str, list[Utterance]] = defaultdict(list)
    for row in rows:
        assert row.split is not None
        assert row.duration is not None
        splits[row.split].append(
            Utterance(row.id, str(row.path), round(row.duration, 6), row.text, row.speaker, row.offset)
        )
    return splits


def _nothing_found_message(corpus: Corpus, folder: Path, prepared: PreparedCorpus) -> str:
    if prepared.left_out:
        return f"None of the {len(prepared.left_out)} utterances in {folder} can be used: {prepared.left_out[0]}"
    return f"There is no {type(corpus).__name__} in {folder}. Expected somewhere below it: {corpus.expected}."


DOWNLOADS, UNPACKED = "downloads", "unpacked"


def unpack_downloads(target: Path, downloads: Sequence[Download], progress: Progress) -> list[Path]:
    """Download and unpack archives one after the other; archives that a former run has unpacked are skipped."""
    folders = [target / UNPACKED / archive_stem(download.name) for download in downloads]
    for download, folder in zip(downloads, folders, strict=True):
        if not folder.exists():
            archive = download_file(download, target / DOWNLOADS, progress)
            extract_archive(archive, folder, progress)
            archive.unlink()
    return folders


def unpack_source(
    target: Path, source: Path, is_corpus: Callable[[Path], bool], force: bool, progress: Progress
) -> list[Path]:
    """The folder itself if it is the corpus, otherwise the unpacked folders of its archives or of the one archive."""
    if source.is_dir():
        archives = sorted(filter(is_archive, source.iterdir()))
        if not archives or is_corpus(source):
            return [source]
    elif is_archive(source):
        archives = [source]
    else:
        state = "is neither a folder nor an archive" if source.exists() else "does not exist"
        raise UsageError(f"The source {source} {state}. Archives end with {', '.join(ARCHIVE_SUFFIXES)}.")
    folders = [target / UNPACKED / archive_stem(archive.name) for archive in archives]
    for archive, folder in zip(archives, folders, strict=True):
        if force or not folder.exists():
            extract_archive(archive, folder, progress)
    return folders


SPLITS = ("train", "val", "test")


def claim_target(target: Path, force: bool, kept: Collection[str] = ()) -> None:
    """Make the folder, or refuse one that holds anything except the names in `kept`, unless forced.

    Manifests of a former run are removed at once: without them the folder is incomplete until new ones are written.
    """
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file; a folder is needed to write the corpus into.")
    present = sorted(path.name for path in target.iterdir() if path.name not in kept) if target.exists() else []
    if present and not force:
        raise UsageError(
            f"The folder {target} is not empty (it holds {present[0]!r}). "
            "Choose another one, or write over it with --force."
        )
    target.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        manifest_path(target, split).unlink(missing_ok=True)


def write_manifests(target: Path, splits: Mapping[str, Iterable[Utterance]]) -> dict[str, Path]:
    """Write one manifest per split, `test` last: a folder with all of them is complete."""
    return {split: write_manifest(manifest_path(target, split), splits[split]) for split in SPLITS if split in splits}


def manifest_path(target: Path, split: str) -> Path:
    """The path of the manifest of a split."""
    return target / f"{split}.jsonl"

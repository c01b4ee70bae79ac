"""Makes a manifest of a folder of recordings, or of several manifests.

In a folder, the text of `a/b/one.wav` is, in this order: a row of a manifest (`*.jsonl`) at the top of the folder; the
line of `one` in an `a/b/*.trans.txt`; the file `a/b/one.txt`, where folders called `wav` and `txt` count as one.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from sonosco_like.data.audio import AUDIO_SUFFIXES
from sonosco_like.data.manifest import Manifest, write_manifest
from sonosco_like.data.tools.files import claim_file, measure_recordings, read_text
from sonosco_like.errors import DataError, UsageError, as_sentence
from sonosco_like.progress import Progress, no_progress
from sonosco_like.records import Utterance

Key: TypeAlias = tuple[str, ...]
"""A path below the folder without its suffix, and without folders called `wav` or `txt`."""


@dataclass
class ManifestSummary:
    """The result for a folder: rows written, and recordings left out because they lack a text or are broken."""

    rows: int = 0
    seconds: float = 0.0
    without_text: list[Path] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def make_manifest(
    folder: Path, output: Path, speaker: str | None = None, force: bool = False, progress: Progress = no_progress
) -> ManifestSummary:
    """Write a manifest of a folder.

    `speaker` is a regular expression that is searched for in the path of a recording below the folder; its first group
    is the name of the speaker.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder. Name the folder that holds the recordings.")
    pattern = _speaker_pattern(speaker)
    claim_file(output, force)
    found = ManifestSummary()
    utterances = list(_known_rows(folder, output, found))
    utterances += _paired_rows(folder, {Path(utterance.audio_filepath) for utterance in utterances}, found, progress)
    if not utterances:
        raise DataError(_nothing_found_message(folder, found))
    if pattern is not None:
        utterances = [_set_speaker(utterance, folder, pattern) for utterance in utterances]
    utterances = list(merge_utterances(utterances, MergeCounts()))
    write_manifest(output, utterances)
    found.rows, found.seconds = len(utterances), sum(utterance.duration for utterance in utterances)
    return found


def _known_rows(folder: Path, output: Path, found: ManifestSummary) -> Iterator[Utterance]:
    """Rows of the manifests that the folder already has, if their recordings exist."""
    for path in sorted((*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz"))):
        if path.resolve() == output.resolve():
            continue
        for utterance in Manifest.read(path):
            if Path(utterance.audio_filepath).is_file():
                yield utterance
            else:
                found.unreadable.append(f"{utterance.audio_filepath} does not exist; {path} has a row for it.")


def _paired_rows(folder: Path, covered: set[Path], found: ManifestSummary, progress: Progress) -> Iterator[Utterance]:
    """Rows of recordings with a text beside them."""
    recordings: dict[Key, Path] = {}
    texts = _read_texts(folder)
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in AUDIO_SUFFIXES or path in covered:
            continue
        key = _key(path.with_suffix(""), folder)
        if key not in texts:
            found.without_text.append(path)
        elif (other := recordings.setdefault(key, path)) != path:
            raise DataError(f"{other} and {path} are two recordings with one text. Remove one of them.")
    ids = {path: "/".join(key) for key, path in recordings.items()}
    for (key, path), (_, seconds) in zip(recordings.items(), measure_recordings(list(ids), progress), strict=True):
        if isinstance(seconds, DataError):
            found.unreadable.append(str(seconds))
        else:
            yield Utterance(ids[path], str(path), seconds, texts[key])


def _read_texts(folder: Path) -> dict[Key, str]:
    texts: dict[Key, str] = {}
    transcripts = []
    for path in sorted(folder.rglob("*.txt")):
        if path.name.endswith(".trans.txt"):
            transcripts.append(path)
        else:
            texts[_key(path.with_suffix(""), folder)] = " ".join(read_text(path).split())
    for path in transcripts:
        for line in read_text(path).splitlines():
            name, _, text = line.strip().partition(" ")
            texts[_key(path.parent / name, folder)] = text.strip()
    return texts


def _key(path: Path, folder: Path) -> Key:
    return tuple(part for part in path.relative_to(folder).parts if part not in ("wav", "txt"))


def _speaker_pattern(expression: str | None) -> re.Pattern[str] | None:
    if expression is None:
        return None
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise UsageError(
            f"The speaker's regular expression {expression!r} cannot be read: {as_sentence(error)}"
        ) from None
    if pattern.groups < 1:
        raise UsageError(f"The speaker's regular expression {expression!r} needs a group, as in '^([^/]+)/'.")
    return pattern


def _set_speaker(utterance: Utterance, folder: Path, pattern: re.Pattern[str]) -> Utterance:
    path = Path(utterance.audio_filepath)
    name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()
    match = pattern.search(name)
    if match is None or not match[1]:
        raise DataError(f"The speaker's regular expression {pattern.pattern!r} finds nothing in {name!r}.")
    return replace(utterance, speaker=match[1])


def _nothing_found_message(folder: Path, found: ManifestSummary) -> str:
    if found.unreadable:
        return (
            f"None of the {len(found.unreadable)} recordings in {folder} can be read. The first: {found.unreadable[0]}"
        )
    if found.without_text:
        return (
            f"None of the {len(found.without_text)} recordings in {folder} has a text. "
            f"Expected {found.without_text[0].with_suffix('.txt')} beside {found.without_text[0].name}."
        )
    return f"There are no recordings in {folder}. Looked for {', '.join(sorted(AUDIO_SUFFIXES))}."


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

"""What is in a manifest, and which of its rows are hardly right."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sonosco_like.data.manifest import Manifest
from sonosco_like.data.text import Alphabet, TextCleaner
from sonosco_like.data.tools.examination import Opening, examine_recordings
from sonosco_like.data.tools.progress import Progress, no_progress
from sonosco_like.errors import UsageError
from sonosco_like.records import Utterance

_MOST_BINS = 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Characters of a transcript per second of audio, outside of which text and audio hardly belong together."""

    slowest: float = 1.5
    fastest: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.slowest < self.fastest:
            raise UsageError(f"The slowest speed must be below the fastest; got {self.slowest} and {self.fastest}.")


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A row that should be looked at."""

    row: int
    id: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Bin:
    """Utterances with a duration from `start` to before `end` seconds."""

    start: float
    end: float
    rows: int
    seconds: float


@dataclass
class Statistics:
    """A manifest in numbers."""

    rows: int = 0
    seconds: float = 0.0
    speakers: int = 0
    without_speaker: int = 0
    words: int = 0
    different_words: int = 0
    different_texts: int = 0
    shortest: float = 0.0
    median: float = 0.0
    longest: float = 0.0
    histogram: list[Bin] = field(default_factory=list)
    not_in_alphabet: dict[str, int] = field(default_factory=dict)
    dropped_by_cleaning: dict[str, int] = field(default_factory=dict)
    sample_rates: dict[int, int] = field(default_factory=dict)
    recordings: int = 0
    decoded: int = 0
    suspicious: list[Suspicion] = field(default_factory=list)


def gather_statistics(
    manifest: Manifest,
    alphabet: str | None = None,
    limits: Limits | None = None,
    progress: Progress = no_progress,
    opening: Opening = "sample",
) -> Statistics:
    """Go through all rows once. Texts are cleaned as for training before they are held against the alphabet.

    Every recording's header is read, and an hour of audio is decoded; `opening` may ask for all of it, or for nothing.
    """
    limits = limits or Limits()
    cleaner = TextCleaner()
    known = set(Alphabet().characters if alphabet is None else alphabet)
    speakers: set[str | None] = set()
    characters: Counter[str] = Counter()
    words: Counter[str] = Counter()
    texts: set[str] = set()
    result = Statistics(rows=len(manifest))
    examined = examine_recordings(manifest, opening, progress)
    with progress(f"examining {manifest.path.name}", len(manifest), "rows") as advance:
        for index, utterance in enumerate(manifest):
            text = cleaner(utterance.text)
            characters.update(text)
            speakers.add(utterance.speaker)
            result.without_speaker += utterance.speaker is None
            words.update(text.split())
            texts.add(text)
            faults = [(fault.reason, fault.detail) for fault in examined.faults.get(index, ())]
            lacking = dict.fromkeys(each for each in text if each not in known)
            if lacking:
                faults.append(("no label", f"for {', '.join(map(repr, lacking))} in the text"))
            result.suspicious += (
                Suspicion(manifest.row(index), utterance.id, *found)
                for found in (*faults, *_suspect(utterance, limits))
            )
            advance(1)
    result.sample_rates = dict(examined.sample_rates.most_common())
    result.recordings, result.decoded = examined.recordings, examined.decoded
    result.speakers = len(speakers - {None})
    result.words, result.different_words, result.different_texts = sum(words.values()), len(words), len(texts)
    result.not_in_alphabet = {each: count for each, count in characters.most_common() if each not in known}
    result.dropped_by_cleaning = dict(cleaner.dropped.counts.most_common())
    _add_durations(result, manifest.durations)
    return result


def _suspect(utterance: Utterance, limits: Limits) -> Iterator[tuple[str, str]]:
    """Reasons and details of all that the row itself shows to be strange."""
    characters = len(utterance.text.strip())
    if characters == 0:
        yield "empty", "there is no text"
    if utterance.duration <= 0:
        yield "empty", "there is no audio"
    if characters and utterance.duration > 0:
        speed = characters / utterance.duration
        detail = f"{characters} characters in {utterance.duration:.2f} s"
        if speed > limits.fastest:
            yield "too fast", detail
        elif speed < limits.slowest:
            yield "too slow", detail


def _add_durations(result: Statistics, durations: NDArray[np.float64]) -> None:
    if len(durations) == 0:
        return
    result.seconds = math.fsum(durations)
    result.shortest, result.median, result.longest = map(float, np.quantile(durations, [0.0, 0.5, 1.0]))
    width = _bin_width(result.longest)
    places = np.floor(durations / width).astype(np.int64)
    rows, seconds = np.bincount(places), np.bincount(places, weights=durations)
    result.histogram = [
        Bin(place * width, (place + 1) * width, int(rows[place]), float(seconds[place]))
        for place in range(int(places.min()), len(rows))
    ]


def _bin_width(longest: float) -> float:
    """The smallest of 1, 2, 5, 10, 20 ... or their tenths that needs few enough bins."""
    exact = max(longest, 0.01) / _MOST_BINS
    power = 10.0 ** math.floor(math.log10(exact))
    return min(width for factor in (1, 2, 5, 10) if (width := factor * power) >= exact)

"""Statistics of a manifest with its suspicious rows, as numbers, as tables for a terminal and as a picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from rich.text import Text

from sonosco_like.data.manifest import Manifest
from sonosco_like.data.text import Alphabet, TextCleaner
from sonosco_like.data.tools.examination import Opening, examine_recordings
from sonosco_like.data.tools.predictions import (
    PredictedUtterance,
    has_predictions,
    prediction_columns,
    read_predictions,
)
from sonosco_like.edits import count_character_errors, count_word_errors
from sonosco_like.errors import UsageError
from sonosco_like.progress import Progress, no_progress
from sonosco_like.records import Utterance

_MOST_BINS = 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Characters of a transcript per second of audio; outside of these limits, text and audio hardly fit together."""

    slowest: float = 1.5
    fastest: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.slowest < self.fastest:
            raise UsageError(f"The slowest speed must be below the fastest; got {self.slowest} and {self.fastest}.")


@dataclass(frozen=True, slots=True)
class SuspiciousRow:
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


@dataclass(frozen=True, slots=True)
class PredictionRates:
    """The error rates of one column of predictions; references and predictions are cleaned as for training."""

    column: str
    utterances: int
    wer: float
    cer: float


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
    suspicious: list[SuspiciousRow] = field(default_factory=list)
    predictions: list[PredictionRates] = field(default_factory=list)


def gather_statistics(
    manifest: Manifest,
    alphabet: str | None = None,
    limits: Limits | None = None,
    progress: Progress = no_progress,
    opening: Opening = "sample",
) -> Statistics:
    """Go through all rows once. Texts are cleaned as for training before they are compared with the alphabet.

    The header of every recording is read, and an hour of audio is decoded; `opening` chooses all of it or nothing.
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
            unlabelled = dict.fromkeys(each for each in text if each not in known)
            if unlabelled:
                faults.append(("no label", f"for {', '.join(map(repr, unlabelled))} in the text"))
            result.suspicious += (
                SuspiciousRow(manifest.row(index), utterance.id, *found)
                for found in (*faults, *_find_suspicions(utterance, limits))
            )
            advance(1)
    result.sample_rates = dict(examined.sample_rates.most_common())
    result.recordings, result.decoded = examined.recordings, examined.decoded
    result.speakers = len(speakers - {None})
    result.words, result.different_words, result.different_texts = sum(words.values()), len(words), len(texts)
    result.not_in_alphabet = {each: count for each, count in characters.most_common() if each not in known}
    result.dropped_by_cleaning = dict(cleaner.dropped_counts.most_common())
    _add_durations(result, manifest.durations)
    if has_predictions(manifest.path):
        result.predictions = list(_prediction_rates(read_predictions(manifest.path)))
    return result


def _prediction_rates(rows: Sequence[PredictedUtterance]) -> Iterator[PredictionRates]:
    cleaner = TextCleaner()
    for column in prediction_columns(rows):
        chosen = [row for row in rows if column in row.predictions]
        references = [cleaner(row.reference) for row in chosen]
        hypotheses = [cleaner(row.predictions[column]) for row in chosen]
        words, characters = count_word_errors(references, hypotheses), count_character_errors(references, hypotheses)
        yield PredictionRates(column, len(chosen), words.rate, characters.rate)


def _find_suspicions(utterance: Utterance, limits: Limits) -> Iterator[tuple[str, str]]:
    """The reasons and details of everything that is strange in the row itself."""
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


_BAR = 30


def statistics_tables(statistics: Statistics, title: str, most_suspicious: int) -> Iterator[Table]:
    """Numbers, lengths, characters and suspicious rows; tables without rows are left out."""
    yield _summary_table(statistics, title)
    if statistics.predictions:
        yield _predictions_table(statistics.predictions)
    yield _lengths_table(statistics)
    if statistics.not_in_alphabet:
        yield _characters_table("characters not in the alphabet", statistics.not_in_alphabet)
    if statistics.dropped_by_cleaning:
        yield _characters_table("characters that cleaning drops", statistics.dropped_by_cleaning)
    if statistics.suspicious:
        yield _suspicious_table(statistics, most_suspicious)


def _summary_table(statistics: Statistics, title: str) -> Table:
    table = _new_table(title, "", "")
    speakers = f"{statistics.speakers:,}"
    if statistics.without_speaker:
        speakers += f" ({statistics.without_speaker:,} utterances without one)"
    for name, value in (
        ("utterances", f"{statistics.rows:,}"),
        ("hours", f"{statistics.seconds / 3600:.2f}"),
        ("speakers", speakers),
        ("words", f"{statistics.words:,}, {statistics.different_words:,} different"),
        ("different texts", f"{statistics.different_texts:,}"),
        ("seconds", f"{statistics.shortest:.2f} to {statistics.longest:.2f}, median {statistics.median:.2f}"),
        ("recordings", _describe_recordings(statistics)),
        ("suspicious rows", f"{len({suspicion.row for suspicion in statistics.suspicious}):,}"),
    ):
        table.add_row(name, value)
    return table


def _describe_recordings(statistics: Statistics) -> str:
    rates = ", ".join(f"{count:,} of {rate:,} Hz" for rate, count in statistics.sample_rates.items())
    decoded = f"{statistics.decoded:,} decoded" if statistics.decoded else "none decoded"
    return f"{statistics.recordings:,}, {decoded}" + (f"; {rates}" if rates else "")


def _predictions_table(predictions: Sequence[PredictionRates]) -> Table:
    table = _new_table("predictions (`sonosco evaluate` has intervals and details)", "", "utterances", "WER", "CER")
    for each in predictions:
        table.add_row(Text(each.column), f"{each.utterances:,}", f"{each.wer:.2%}", f"{each.cer:.2%}")
    return table


def _lengths_table(statistics: Statistics) -> Table:
    table = _new_table("lengths", "seconds", "utterances", "minutes", "")
    highest = max((each.rows for each in statistics.histogram), default=0)
    for each in statistics.histogram:
        bar = "#" * round(_BAR * each.rows / highest)
        table.add_row(f"{each.start:g} to {each.end:g}", f"{each.rows:,}", f"{each.seconds / 60:.1f}", bar)
    return table


def _characters_table(title: str, counts: Mapping[str, int]) -> Table:
    table = _new_table(title, "character", "code", "times")
    for character, count in counts.items():
        table.add_row(repr(character), f"U+{ord(character):04X}", f"{count:,}")
    return table


def _suspicious_table(statistics: Statistics, most: int) -> Table:
    count = len(statistics.suspicious)
    title = "suspicious rows" if count <= most else f"suspicious rows ({most} of {count:,}; --json lists all)"
    table = _new_table(title, "row", "id", "reason", "detail")
    for suspicion in statistics.suspicious[:most]:
        table.add_row(str(suspicion.row), suspicion.id, suspicion.reason, suspicion.detail)
    return table


def _new_table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE, show_header=any(columns))
    for column in table.columns:
        column.overflow = "fold"
    return table


def draw_histogram(statistics: Statistics, title: str, path: Path) -> Path:
    """Write a PNG: how many utterances there are of each length, and how much of the audio they are."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    bins = statistics.histogram
    starts, widths = [each.start for each in bins], [each.end - each.start for each in bins]
    axes.bar(starts, [each.rows for each in bins], widths, align="edge", color="#4878a8", edgecolor="white")
    axes.set(
        title=f"{title}: {statistics.rows:,} utterances, {statistics.seconds / 3600:.2f} hours",
        xlabel="seconds",
        ylabel="utterances",
    )
    minutes = axes.twinx()
    middles = [(each.start + each.end) / 2 for each in bins]
    minutes.plot(middles, [each.seconds / 60 for each in bins], color="#c05020", marker="o", markersize=3)
    minutes.set_ylabel("minutes of audio", color="#c05020")
    minutes.set_ylim(bottom=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, format="png")
    return path

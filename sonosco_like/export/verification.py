"""The verification of an export: every utterance of a manifest, transcribed by the recogniser and by the export.

The result is `verification.json` beside the graphs. Where texts differ, the numbers of the first such utterance show
which part is the cause: the features, the encoder or the search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sonosco_like.data import Manifest
from sonosco_like.data.audio import load_audio
from sonosco_like.edits import ErrorCounts, count_word_errors
from sonosco_like.errors import DataError, UsageError
from sonosco_like.export.formats import ExportFormat, Numbers, Runner
from sonosco_like.export.graphs import IMPOSSIBLE
from sonosco_like.inference import TrainedRecogniser
from sonosco_like.progress import Progress

_BATCH = 8  # utterances in one call, of different lengths
_SILENT = 1e-4
_CLOSE = 0.01  # numbers that differ by more come from a mistake, not from rounding
_MOST_LISTED = 5


@dataclass(frozen=True)
class ComparedUtterance:
    """An utterance with its reference, and its texts by the recogniser and by each runner."""

    id: str
    reference: str
    ours: str
    theirs: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """One runner against the recogniser: word errors of both, and the utterances whose texts differ."""

    name: str
    exact: bool
    utterances: int
    ours: ErrorCounts
    theirs: ErrorCounts
    differing: list[dict[str, str]]
    largest_differences: dict[str, float] = field(default_factory=dict)
    cause: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the texts are the same; with weights of 8 bits they may differ."""
        return not self.exact or not self.differing

    def lines(self) -> list[str]:
        """The comparison as lines to print."""
        same = self.utterances - len(self.differing)
        found = [
            f"{self.name}: {same} of {self.utterances} texts are the same; WER {100 * self.theirs.rate:.2f} % "
            f"({self.theirs.in_words()}), ours {100 * self.ours.rate:.2f} %"
        ]
        for each in self.differing[:_MOST_LISTED]:
            found.append(f"  {each['id']}: ours {each['ours']!r}, exported {each['exported']!r}")
        if len(self.differing) > _MOST_LISTED:
            found.append(f"  and {len(self.differing) - _MOST_LISTED} more, all in verification.json")
        return found + ([f"  {self.cause}"] if self.cause else [])

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "runner": self.name,
            "agrees": self.agrees,
            "must_be_the_same": self.exact,
            "utterances": self.utterances,
            "same_texts": self.utterances - len(self.differing),
            "wer": self.theirs.rate,
            "wer_of_the_recogniser": self.ours.rate,
            "reference_words": self.ours.reference_length,
            "largest_differences": self.largest_differences,
            "cause": self.cause,
            "differing": self.differing,
        }


def compare(written: ExportFormat, folder: Path, manifest: Path, progress: Progress) -> tuple[list[Comparison], int]:
    """(a comparison for each runner of a folder, how many rows of the manifest could not be read)."""
    runners = written.runners(folder)
    utterances, unreadable = [], 0
    rows = list(Manifest.read(manifest))
    with progress("verifying", len(rows), "utterances") as advance:
        for batch in _batches(rows, written.recogniser):
            unreadable += batch.unreadable
            utterances += _transcribe(batch, written.recogniser, runners)
            advance(len(batch.waveforms) + batch.unreadable)
    if not utterances:
        raise UsageError(f"None of the {len(rows)} utterances of {manifest} can be read, so nothing can be verified.")
    by_id = {row.id: row for row in rows}
    found = []
    for number, runner in enumerate(runners):
        differing = [each for each in utterances if each.ours != each.theirs[number]]
        probed = by_id[(differing or utterances)[0].id]
        waveform_N = _load(probed, written.recogniser.features.sample_rate)
        found.append(_compare(written, runner, number, utterances, differing, waveform_N))
    return found, unreadable


@dataclass
class _Batch:
    ids: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    waveforms: list[NDArray[np.float32]] = field(default_factory=list)
    unreadable: int = 0


def _batches(rows: list[Any], recogniser: TrainedRecogniser) -> Iterator[_Batch]:
    for start in range(0, len(rows), _BATCH):
        batch = _Batch()
        for row in rows[start : start + _BATCH]:
            try:
                waveform_N = _load(row, recogniser.features.sample_rate)
            except DataError:
                batch.unreadable += 1
                continue
            batch.ids.append(row.id)
            batch.references.append(recogniser.cleaner(row.text) if recogniser.cleaner else row.text)
            batch.waveforms.append(waveform_N)
        yield batch


def _load(row: Any, sample_rate: int) -> NDArray[np.float32]:
    waveform_N: NDArray[np.float32] = load_audio(row.audio_filepath, sample_rate, row.offset, row.duration).numpy()
    if not len(waveform_N):
        raise DataError(f"{row.audio_filepath} has no samples there.")
    return waveform_N


def _transcribe(batch: _Batch, recogniser: TrainedRecogniser, runners: list[Runner]) -> list[ComparedUtterance]:
    if not batch.waveforms:
        return []
    hypotheses = recogniser.decode(recogniser.batch([torch.from_numpy(each) for each in batch.waveforms]))
    silent = [float(np.abs(each).max()) <= _SILENT for each in batch.waveforms]
    ours = ["" if quiet else _plain(each[0].text) for quiet, each in zip(silent, hypotheses, strict=True)]
    theirs = zip(*(map(_plain, runner.texts(batch.waveforms)) for runner in runners), strict=True)
    return list(map(ComparedUtterance, batch.ids, batch.references, ours, theirs))


def _plain(text: str) -> str:
    return " ".join(text.split())


def _compare(
    written: ExportFormat,
    runner: Runner,
    number: int,
    utterances: list[ComparedUtterance],
    differing: list[ComparedUtterance],
    probed_N: NDArray[np.float32],
) -> Comparison:
    references = [each.reference for each in utterances]
    expected = written.expected_numbers(probed_N)
    distances = _distances(expected, runner.numbers(probed_N))
    return Comparison(
        runner.name,
        runner.exact,
        len(utterances),
        count_word_errors(references, [each.ours for each in utterances]),
        count_word_errors(references, [each.theirs[number] for each in utterances]),
        [
            {"id": each.id, "reference": each.reference, "ours": each.ours, "exported": each.theirs[number]}
            for each in differing
        ],
        distances,
        _cause(runner, expected, distances, differing[0].ours) if differing and runner.exact else "",
    )


def _distances(expected: Numbers, found: Numbers) -> dict[str, float]:
    """The largest difference of each output; infinite for outputs of different shapes."""
    distances = {}
    for name in expected.keys() & found.keys():
        one, other = np.asarray(expected[name], dtype=np.float64), np.asarray(found[name], dtype=np.float64)
        frames = min(len(one), len(other)) if one.ndim == 2 else None  # one may be padded
        one, other = (one[:frames], other[:frames]) if frames else (one, other)
        same = one.shape == other.shape
        distances[name] = float(np.abs(one - other)[one > IMPOSSIBLE / 2].max(initial=0.0)) if same else float("inf")
    return dict(sorted(distances.items()))


def _cause(runner: Runner, expected: Numbers, distances: dict[str, float], ours: str) -> str:
    """Which part is the cause: the first one whose numbers differ for the first differing utterance."""
    features, others = distances.get("features", 0.0), [each for name, each in distances.items() if name != "features"]
    if not distances:
        return "The runner does not show its numbers."
    if features > _CLOSE:
        return f"They part in the features, which differ by up to {features:.3g}."
    if max(others, default=0.0) > _CLOSE:
        worst = max((each, name) for name, each in distances.items() if name != "features")
        return f"The features agree. They part in the encoder: its output {worst[1]!r} differs by up to {worst[0]:.3g}."
    if runner.search is not None and runner.search(expected) != ours:
        return "Features and encoder agree. They part in the search: with our own numbers it finds another text."
    if runner.hidden:
        return f"The graph agrees, given our own features. So they part in what it does not show: {runner.hidden}."
    return (
        "All numbers agree to within rounding, so the choice is between two texts that are almost equally probable. "
        "Train longer, or accept it."
    )

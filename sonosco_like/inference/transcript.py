"""The transcript of a recording: its text, its words with their times, and its segments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sonosco_like.records import Hypothesis, Token


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of a recording, from `start` to `end` in seconds.

    `words` are those of the best hypothesis, with times of the recording. `hypotheses` are the n best, the best one
    first, with times of the segment. A silent segment has neither.
    """

    start: float
    end: float
    words: tuple[Token, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()

    @property
    def text(self) -> str:
        """The words, joined by spaces."""
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Transcript:
    """The text of a recording; `str(transcript)` and `transcript.text` are the same."""

    name: str
    segments: tuple[Segment, ...]

    @property
    def text(self) -> str:
        """The text of all segments."""
        return " ".join(segment.text for segment in self.segments if segment.words)

    @property
    def words(self) -> tuple[Token, ...]:
        """Every word with its start and end in seconds, and the confidence of the model."""
        return tuple(word for segment in self.segments for word in segment.words)

    @property
    def duration(self) -> float:
        """The length of the recording in seconds."""
        return self.segments[-1].end if self.segments else 0.0

    @property
    def confidence(self) -> float | None:
        """The geometric mean over all words; None without words."""
        return confidence_of(self.words)

    def __str__(self) -> str:
        return self.text

    def as_dict(self, n_best: bool = False) -> dict[str, Any]:
        """Plain data, as `sonosco transcribe --json` prints it; with `n_best`, all hypotheses of each segment too."""
        return {
            "audio": self.name,
            "duration": round(self.duration, 3),
            "text": self.text,
            "confidence": _round_finite(self.confidence),
            "words": [_word(word) for word in self.words],
            "segments": [_segment(segment, n_best) for segment in self.segments],
        }


def confidence_of(words: Sequence[Token]) -> float | None:
    """The geometric mean of the confidences of words; None without words."""
    if not words:
        return None
    return math.exp(sum(math.log(max(word.confidence, 1e-30)) for word in words) / len(words))


def _word(word: Token) -> dict[str, Any]:
    return {
        "word": word.text,
        "start": round(word.start, 3),
        "end": round(word.end, 3),
        "confidence": _round_finite(word.confidence),
    }


def _segment(segment: Segment, n_best: bool) -> dict[str, Any]:
    content: dict[str, Any] = {
        "start": round(segment.start, 3),
        "end": round(segment.end, 3),
        "text": segment.text,
        "confidence": _round_finite(confidence_of(segment.words)),
    }
    if n_best:
        content["readings"] = [{"text": each.text, "score": _round_finite(each.score)} for each in segment.hypotheses]
    return content


def _round_finite(value: float | None) -> float | None:
    """The value with four digits; None if it is not finite, since JSON has no such numbers."""
    return None if value is None or not math.isfinite(value) else round(value, 4)

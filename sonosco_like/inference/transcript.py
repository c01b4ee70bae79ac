"""What was said in a recording: its text, its words with their times, and the pieces they were heard in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sonosco_like.records import Hypothesis, Token


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a recording, from `start` to `end` in seconds.

    `words` are those of the best reading, in seconds of the recording. `readings` are all that were asked for, the best
    one first, with times in seconds of the piece. Silence has none.
    """

    start: float
    end: float
    words: tuple[Token, ...] = ()
    readings: tuple[Hypothesis, ...] = ()

    @property
    def text(self) -> str:
        """The words in a row."""
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Transcript:
    """The text of a recording; `str(transcript)` and `transcript.text` are the same."""

    name: str
    segments: tuple[Segment, ...]

    @property
    def text(self) -> str:
        """All that was said."""
        return " ".join(segment.text for segment in self.segments if segment.words)

    @property
    def words(self) -> tuple[Token, ...]:
        """Every word with its start and end in seconds and the model's confidence in it."""
        return tuple(word for segment in self.segments for word in segment.words)

    @property
    def duration(self) -> float:
        """Seconds of the recording."""
        return self.segments[-1].end if self.segments else 0.0

    @property
    def confidence(self) -> float | None:
        """The geometric mean over all words; None if nothing was said."""
        return confidence_of(self.words)

    def __str__(self) -> str:
        return self.text

    def as_dict(self, readings: bool = False) -> dict[str, Any]:
        """Plain data, as `sonosco transcribe --json` prints it; with all `readings` of each segment if wished."""
        return {
            "audio": self.name,
            "duration": round(self.duration, 3),
            "text": self.text,
            "confidence": _rounded(self.confidence),
            "words": [_word(word) for word in self.words],
            "segments": [_segment(segment, readings) for segment in self.segments],
        }


def confidence_of(words: Sequence[Token]) -> float | None:
    """The geometric mean of the confidences of words; None without any."""
    if not words:
        return None
    return math.exp(sum(math.log(max(word.confidence, 1e-30)) for word in words) / len(words))


def _word(word: Token) -> dict[str, Any]:
    return {
        "word": word.text,
        "start": round(word.start, 3),
        "end": round(word.end, 3),
        "confidence": _rounded(word.confidence),
    }


def _segment(segment: Segment, readings: bool) -> dict[str, Any]:
    content: dict[str, Any] = {
        "start": round(segment.start, 3),
        "end": round(segment.end, 3),
        "text": segment.text,
        "confidence": _rounded(confidence_of(segment.words)),
    }
    if readings:
        content["readings"] = [{"text": each.text, "score": _rounded(each.score)} for each in segment.readings]
    return content


def _rounded(value: float | None) -> float | None:
    """Four digits; what is not a finite number has no place in JSON."""
    return None if value is None or not math.isfinite(value) else round(value, 4)

"""The transcript of a recording: its segments and words with their times, and the formats in which it is written."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
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
        content["hypotheses"] = [{"text": each.text, "score": _round_finite(each.score)} for each in segment.hypotheses]
    return content


def _round_finite(value: float | None) -> float | None:
    """The value with four digits; None if it is not finite, since JSON has no such numbers."""
    return None if value is None or not math.isfinite(value) else round(value, 4)


_LINE, _LINES = 42, 2  # characters and lines of a subtitle, as broadcasters use
_LONGEST, _PAUSE, _LINGER = 6.0, 0.8, 0.5  # seconds: most of a subtitle, a pause that ends it, how long it stays


@dataclass(frozen=True, slots=True)
class Cue:
    """A subtitle."""

    start: float
    end: float
    text: str


class TranscriptWriter:
    """Formats the transcript of one recording piece by piece; the returned texts are written one after the other."""

    def __init__(self, kind: str, name: str, n_best: bool = False) -> None:
        self.kind, self.name, self.n_best = kind, name, n_best
        self._segments: list[Segment] = []
        self._cues = 0

    def begin(self) -> str:
        """The text before the first segment."""
        return "WEBVTT\n\n" if self.kind == "vtt" else ""

    def add(self, segment: Segment) -> str:
        """The text of one more segment."""
        self._segments.append(segment)
        if self.kind in ("srt", "vtt"):
            return "".join(map(self._cue, cues_of(segment.words)))
        return f"{segment.text}\n" if self.kind == "txt" and segment.words else ""

    def end(self) -> str:
        """The text after the last segment."""
        transcript = Transcript(self.name, tuple(self._segments))
        if self.kind == "json":
            return json.dumps(transcript.as_dict(self.n_best), ensure_ascii=False) + "\n"
        return "\n" if self.kind == "txt" and not transcript.words else ""

    def _cue(self, cue: Cue) -> str:
        self._cues += 1
        mark = "," if self.kind == "srt" else "."
        number = f"{self._cues}\n" if self.kind == "srt" else ""
        text = cue.text if self.kind == "srt" else cue.text.replace("&", "&amp;").replace("<", "&lt;")
        return f"{number}{_time(cue.start, mark)} --> {_time(cue.end, mark)}\n{text}\n\n"


def render(transcript: Transcript, kind: str, n_best: bool = False) -> str:
    """A whole transcript in one of the formats."""
    writer = TranscriptWriter(kind, transcript.name, n_best)
    return "".join([writer.begin(), *map(writer.add, transcript.segments), writer.end()])


def cues_of(words: Sequence[Token]) -> Iterator[Cue]:
    """Words as subtitles of at most two lines, which end at pauses and stay long enough to be read."""
    groups: list[list[Token]] = []
    for word in words:
        if not groups or _is_full(groups[-1], word):
            groups.append([])
        groups[-1].append(word)
    for index, group in enumerate(groups):
        limit = groups[index + 1][0].start if index + 1 < len(groups) else float("inf")
        end = max(group[-1].end, min(group[-1].end + _LINGER, limit))
        yield Cue(group[0].start, end, "\n".join(_lines([word.text for word in group])))


def _is_full(group: Sequence[Token], word: Token) -> bool:
    fits = len(_lines([*(each.text for each in group), word.text])) <= _LINES
    return not fits or word.start - group[-1].end > _PAUSE or word.end - group[0].start > _LONGEST


def _lines(words: Sequence[str]) -> list[str]:
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= _LINE:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _time(seconds: float, mark: str) -> str:
    minutes, milliseconds = divmod(round(seconds * 1000), 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{milliseconds // 1000:02d}{mark}{milliseconds % 1000:03d}"

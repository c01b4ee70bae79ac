"""Transcripts as text, JSON lines and subtitles, written segment by segment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sonosco_like.inference.transcript import Segment, Transcript
from sonosco_like.records import Token

_LINE, _LINES = 42, 2  # characters and lines of a subtitle, as broadcasters use
_LONGEST, _PAUSE, _LINGER = 6.0, 0.8, 0.5  # seconds: most of a subtitle, a pause that ends it, how long it stays


@dataclass(frozen=True, slots=True)
class Cue:
    """A subtitle."""

    start: float
    end: float
    text: str


class TranscriptWriter:
    """Formats the transcript of one recording piece by piece; the returned texts follow each other in the file."""

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

"""Cuts long recordings into chunks that a model takes at once, and merges the hypotheses of the chunks.

Chunks end in pauses, so that no word is cut. Where there is no pause, a chunk overlaps with the one before it, and
`merge_overlaps` keeps the words of the overlap once.

Shape suffixes: N samples, K frames of 10 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from sonosco_like.errors import UsageError
from sonosco_like.inference.audio_stream import Samples
from sonosco_like.inference.transcript import Segment
from sonosco_like.records import Hypothesis, Token

Words = tuple[Token, ...]

LONGEST = 8.0  # seconds of a chunk, if the length of the training utterances is not known
OVERLAP = 2.0  # seconds that two chunks share if there is no pause between them
_FRAME = 0.01
_SHORTEST_PAUSE, _LONG_PAUSE = 0.12, 0.4  # seconds: between two words, between two phrases
_EARLIEST = 0.3  # share of the longest chunk; a cut before it would give too many chunks
_CONTRAST = 10.0  # dB between loud and quiet; with less, pauses cannot be told from speech
_RANGE = 60.0  # dB; whatever is further below the loud level counts as equally quiet
_INAUDIBLE = 1e-4  # a chunk without a sample above this is silent


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a recording from `start` to `end` in seconds; if it `overlaps`, it shares audio with the one before."""

    samples_N: Samples
    start: float
    end: float
    overlaps: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether no sample is above the level of silence."""
        loudest = max(float(self.samples_N.max(initial=0.0)), -float(self.samples_N.min(initial=0.0)))
        return loudest <= _INAUDIBLE


@dataclass(frozen=True, slots=True)
class Segmenter:
    """Cuts waveforms into chunks of at most `longest` seconds; without a pause, two chunks share `overlap` seconds."""

    longest: float = LONGEST
    overlap: float = OVERLAP

    def __post_init__(self) -> None:
        if not 0 <= self.overlap <= self.longest / 2 or self.longest < 1:
            raise UsageError(
                f"`longest` must be at least 1 s, and `overlap` at most half of it; "
                f"got {self.longest:g} s and {self.overlap:g} s."
            )

    def chunks(self, blocks: Iterable[Samples], sample_rate: int) -> Iterator[Chunk]:
        """Cut a waveform that comes in blocks."""
        most, overlap = int(self.longest * sample_rate), int(self.overlap * sample_rate)
        rest_N = np.zeros(0, dtype=np.float32)
        start, overlaps = 0, False
        for block_N in blocks:
            rest_N = np.concatenate([rest_N, block_N])
            while len(rest_N) > most:
                pause = _pause_in(rest_N[:most], sample_rate)
                end = pause or most
                yield _chunk(rest_N[:end], start, sample_rate, overlaps)
                overlaps = pause is None and overlap > 0
                begin = end - overlap if overlaps else end
                start, rest_N = start + begin, rest_N[begin:]
        if len(rest_N):
            yield _chunk(rest_N, start, sample_rate, overlaps)


def _chunk(samples_N: Samples, start: int, sample_rate: int, overlaps: bool) -> Chunk:
    return Chunk(samples_N.copy(), start / sample_rate, (start + len(samples_N)) / sample_rate, overlaps)


def _pause_in(samples_N: Samples, sample_rate: int) -> int | None:
    """The middle of a pause, in samples: of the first long pause, else of the longest of the short ones.

    The first, not the last: attention models fail on chunks that are longer than their training utterances.
    """
    size = round(_FRAME * sample_rate)
    level_K = _levels(samples_N, size)
    loud = float(np.quantile(level_K, 0.95))
    if loud < 20 * np.log10(_INAUDIBLE):
        return len(samples_N)  # silence can be cut anywhere
    quiet = max(float(np.quantile(level_K, 0.05)), loud - _RANGE)
    if loud - quiet < _CONTRAST:
        return None
    starts, ends = _runs(level_K < quiet + 0.3 * (loud - quiet))
    middles, lengths = (starts + ends) // 2, (ends - starts) * _FRAME
    late = (middles >= _EARLIEST * len(level_K)) & (lengths >= _SHORTEST_PAUSE)
    middles, lengths = middles[late], lengths[late]
    if len(middles) == 0:
        return None
    long = np.flatnonzero(lengths >= _LONG_PAUSE)
    chosen = long[0] if len(long) else lengths.argmax()
    return int(middles[chosen]) * size


def _levels(samples_N: Samples, size: int) -> NDArray[np.float64]:
    """The power of each frame in dB, averaged with its neighbours so that a pitch period does not look like a pause."""
    frames = len(samples_N) // size
    frames_KN = samples_N[: frames * size].reshape(frames, size)
    power_K = np.einsum("kn,kn->k", frames_KN, frames_KN).astype(np.float64) / size
    power_K = np.convolve(power_K, np.full(3, 1 / 3), mode="same")
    level_K: NDArray[np.float64] = 10 * np.log10(power_K + 1e-12)
    return level_K


def _runs(marked_K: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The indices where runs of True begin, and those where they end."""
    edges = np.diff(np.concatenate([[False], marked_K, [False]]).astype(np.int8))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


def segment_of(chunk: Chunk, hypotheses: Sequence[Hypothesis]) -> Segment:
    """The hypotheses of a chunk as a segment of the recording, with times of the recording."""
    words = hypotheses[0].words if hypotheses else ()
    placed = tuple(
        replace(word, start=chunk.start + word.start, end=min(chunk.start + word.end, chunk.end)) for word in words
    )
    return Segment(chunk.start, chunk.end, placed, tuple(hypotheses))


def merge_overlaps(before: Segment, after: Segment) -> tuple[Segment, Segment]:
    """Two overlapping segments as two that do not overlap.

    The words in the overlap are compared. The cut lies in the middle of the longest run of equal words, or, if no word
    is equal, in the middle of the overlap: near the edge of a chunk half a word may have been recognised.
    """
    tail = [index for index, word in enumerate(before.words) if word.end > after.start]
    head = [index for index, word in enumerate(after.words) if word.start < before.end]
    ending, beginning = [before.words[index].text for index in tail], [after.words[index].text for index in head]
    match = SequenceMatcher(None, ending, beginning, autojunk=False).find_longest_match()
    if match.size:
        kept = tail[match.a] + (match.size + 1) // 2
        first = head[match.b] + (match.size + 1) // 2
        words, following = before.words[:kept], after.words[first:]
    else:
        middle = (after.start + before.end) / 2
        words = tuple(word for word in before.words if word.start + word.end <= 2 * middle)
        following = tuple(word for word in after.words if word.start + word.end > 2 * middle)
    border = _border(words, following, (after.start + before.end) / 2)
    return replace(before, words=words, end=border), replace(after, words=following, start=border)


def _border(words: Words, following: Words, middle: float) -> float:
    """The time between the last word of one segment and the first word of the next."""
    earliest = words[-1].end if words else middle
    latest = following[0].start if following else middle
    return min(max(earliest, middle), latest) if earliest <= latest else (earliest + latest) / 2

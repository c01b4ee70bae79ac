"""A long recording as pieces that a model can hear at once.

Pieces end where it is quiet, so that no word is cut. Where nobody pauses, a piece overlaps with the one before it, and
`joining` finds out which words were heard twice.

Shape suffixes: N samples, K frames of 10 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sonosco_like.errors import UsageError
from sonosco_like.inference.reading import Samples

LONGEST = 8.0  # seconds of a piece, where nobody says how long the utterances were that a model was trained on
OVERLAP = 2.0  # seconds that two pieces without a pause between them have in common
_FRAME = 0.01
_SHORTEST_PAUSE, _LONG_PAUSE = 0.12, 0.4  # seconds: between two words, between two phrases
_EARLIEST = 0.3  # of the longest piece: what ends sooner would be too many pieces
_CONTRAST = 10.0  # dB between loud and quiet, below which there is no telling what is a pause
_RANGE = 60.0  # dB below the loud level, under which everything is equally quiet
_INAUDIBLE = 1e-4  # no sample beyond this is silence, as in AudioDataset


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a recording, with its place in it in seconds. `overlaps` the piece before it, or does not."""

    samples_N: Samples
    start: float
    end: float
    overlaps: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to hear."""
        loudest = max(float(self.samples_N.max(initial=0.0)), -float(self.samples_N.min(initial=0.0)))
        return loudest <= _INAUDIBLE


@dataclass(frozen=True, slots=True)
class Cutting:
    """How to cut: no piece has more than `longest` seconds; pieces without a pause between them share `overlap`."""

    longest: float = LONGEST
    overlap: float = OVERLAP

    def __post_init__(self) -> None:
        if not 0 <= self.overlap <= self.longest / 2 or self.longest < 1:
            raise UsageError(
                f"A piece must have at least 1 s, and the overlap must be at most half of it; "
                f"got {self.longest:g} s and {self.overlap:g} s."
            )

    def pieces(self, blocks: Iterable[Samples], sample_rate: int) -> Iterator[Piece]:
        """The pieces of a waveform that comes in blocks."""
        most, overlap = int(self.longest * sample_rate), int(self.overlap * sample_rate)
        rest_N = np.zeros(0, dtype=np.float32)
        start, overlaps = 0, False
        for block_N in blocks:
            rest_N = np.concatenate([rest_N, block_N])
            while len(rest_N) > most:
                pause = _pause_in(rest_N[:most], sample_rate)
                end = pause or most
                yield _piece(rest_N[:end], start, sample_rate, overlaps)
                overlaps = pause is None and overlap > 0
                begin = end - overlap if overlaps else end
                start, rest_N = start + begin, rest_N[begin:]
        if len(rest_N):
            yield _piece(rest_N, start, sample_rate, overlaps)


def _piece(samples_N: Samples, start: int, sample_rate: int, overlaps: bool) -> Piece:
    return Piece(samples_N.copy(), start / sample_rate, (start + len(samples_N)) / sample_rate, overlaps)


def _pause_in(samples_N: Samples, sample_rate: int) -> int | None:
    """The middle of a pause, in samples: of the first long one, else of the longest of the short ones.

    The first, not the last: attention models go astray in pieces that are longer than what they were trained on.
    """
    size = round(_FRAME * sample_rate)
    level_K = _levels(samples_N, size)
    loud = float(np.quantile(level_K, 0.95))
    if loud < 20 * np.log10(_INAUDIBLE):
        return len(samples_N)  # silence may be cut anywhere
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
    """Where runs of True begin, and where they end."""
    edges = np.diff(np.concatenate([[False], marked_K, [False]]).astype(np.int8))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)

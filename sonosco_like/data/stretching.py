"""Speech made faster, slower, higher or lower: the signal processing behind three augmentations.

Shape suffixes: N samples, P pieces, W samples of a piece.
"""

from __future__ import annotations

import numpy as np
import soxr
from numpy.typing import NDArray

from sonosco_like.data.framing import Floats

# Settings for speech, near those of SoX's `tempo -s`: pieces hold a few pitch periods, the search spans one of 66 Hz.
_PIECE_SECONDS, _OVERLAP_SECONDS, _SEARCH_SECONDS = 0.060, 0.012, 0.015


def fitted(samples_N: Floats, size: int) -> Floats:
    """Cut, or completed with silence, to `size` samples."""
    return np.pad(samples_N[:size], (0, max(0, size - len(samples_N))))


def faster(samples_N: Floats, factor: float) -> Floats:
    """Played `factor` times as fast, so that length shrinks and pitch rises alike."""
    size = max(1, round(len(samples_N) / factor))
    return fitted(np.asarray(soxr.resample(samples_N, factor, 1.0)), size)


def shortened(samples_N: Floats, factor: float, sample_rate: int) -> Floats:
    """`factor` times shorter at the same pitch.

    Pieces of speech are joined at a different pace than they were cut (WSOLA; Verhelst and Roelands 1993): each is
    taken from where it best continues the piece before, close to where the new pace would have it, and cross-faded.
    """
    size = max(1, round(len(samples_N) / factor))
    piece, overlap, search = (
        max(2, round(seconds * sample_rate)) for seconds in (_PIECE_SECONDS, _OVERLAP_SECONDS, _SEARCH_SECONDS)
    )
    step = piece - overlap
    count = 1 + -(-max(0, size - piece) // step)
    wanted_P = np.round(np.arange(count) * (step * factor)).astype(np.int64)
    padded_N = np.pad(samples_N, (0, max(0, int(wanted_P[-1]) + search + piece - len(samples_N))))
    starts_P = _smooth_starts(padded_N, wanted_P, step, overlap, search)
    return _joined(padded_N, starts_P, piece, overlap)[:size]


def _smooth_starts(
    samples_N: Floats, wanted_P: NDArray[np.int64], step: int, overlap: int, search: int
) -> NDArray[np.int64]:
    """Where to cut each piece, at most half a search from where it is wanted, for the smoothest joints."""
    energy_N = np.concatenate([[0.0], np.cumsum(np.square(samples_N, dtype=np.float64))])
    loudness_N = np.sqrt(energy_N[overlap:] - energy_N[:-overlap] + 1e-9).astype(np.float32)
    starts_P = wanted_P.copy()
    for number in range(1, len(starts_P)):
        continuation = starts_P[number - 1] + step
        first = max(0, wanted_P[number] - search // 2)
        likeness = np.correlate(
            samples_N[first : first + search + overlap - 1], samples_N[continuation : continuation + overlap]
        )
        starts_P[number] = first + np.argmax(likeness / loudness_N[first : first + search])
    return starts_P


def _joined(samples_N: Floats, starts_P: NDArray[np.int64], piece: int, overlap: int) -> Floats:
    """The pieces one after the other, each fading in while the one before fades out."""
    pieces_PW = samples_N[starts_P[:, None] + np.arange(piece)]
    rise_W = ((np.arange(overlap) + 0.5) / overlap).astype(np.float32)
    joints_PW = pieces_PW[1:, :overlap] * rise_W + pieces_PW[:-1, -overlap:] * rise_W[::-1]
    pieces_PW[1:, :overlap] = joints_PW
    return np.concatenate([pieces_PW[:, :-overlap].ravel(), pieces_PW[-1, -overlap:]])


def higher(samples_N: Floats, factor: float, sample_rate: int) -> Floats:
    """At `factor` times the pitch and the same length."""
    return fitted(faster(shortened(samples_N, 1 / factor, sample_rate), factor), len(samples_N))

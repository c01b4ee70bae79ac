"""Long recordings in pieces: where nobody speaks if possible, overlapping if not."""

from __future__ import annotations

import numpy as np
import pytest

from sonosco_like.errors import UsageError
from sonosco_like.inference.cutting import Cutting, Piece

RATE = 8000


def speech(seconds: float, seed: int = 0) -> np.ndarray:
    """Noise as loud as speech."""
    return np.random.default_rng(seed).normal(scale=0.1, size=int(seconds * RATE)).astype(np.float32)


def pause(seconds: float) -> np.ndarray:
    return speech(seconds, 1) * 0.01


def cut(samples: np.ndarray, block: float = 3.0, **settings) -> list[Piece]:
    size = int(block * RATE)
    blocks = [samples[begin : begin + size] for begin in range(0, len(samples), size)]
    return list(Cutting(**settings).pieces(blocks, RATE))


def test_what_is_short_enough_stays_whole():
    (piece,) = cut(speech(15.0), longest=15.0)
    assert (piece.start, piece.end, piece.overlaps) == (0.0, 15.0, False)


def test_pieces_end_in_pauses_and_lose_nothing():
    samples = np.concatenate([speech(4), pause(0.6), speech(4), pause(0.5), speech(4), pause(0.6), speech(4)])
    pieces = cut(samples, longest=6.0)
    assert [round(piece.end, 1) for piece in pieces] == [4.3, 8.8, 13.4, 17.7]
    assert not any(piece.overlaps for piece in pieces)
    assert np.array_equal(np.concatenate([piece.samples_N for piece in pieces]), samples)


def test_a_pause_between_words_will_do_where_there_is_none_between_phrases():
    samples = np.concatenate([speech(3), pause(0.2), speech(2), pause(0.15), speech(5)])
    first = cut(samples, longest=6.0)[0]
    assert first.end == pytest.approx(3.1, abs=0.03)


def test_without_a_pause_pieces_overlap():
    samples = speech(20)
    pieces = cut(samples, longest=6.0, overlap=1.5)
    assert [piece.start for piece in pieces] == [0.0, 4.5, 9.0, 13.5, 18.0][: len(pieces)]
    assert [piece.overlaps for piece in pieces] == [False] + [True] * (len(pieces) - 1)
    assert pieces[-1].end == 20.0
    for piece in pieces:
        part = samples[round(piece.start * RATE) : round(piece.end * RATE)]
        assert np.array_equal(piece.samples_N, part)


def test_how_the_recording_comes_in_changes_nothing():
    samples = np.concatenate([speech(4), pause(0.6), speech(9), pause(0.6), speech(4)])
    whole, blocks = cut(samples, 100.0, longest=5.0), cut(samples, 0.7, longest=5.0)
    assert [(piece.start, piece.end) for piece in whole] == [(piece.start, piece.end) for piece in blocks]


def test_no_piece_is_longer_than_asked():
    rng = np.random.default_rng(0)
    parts = [part for _ in range(20) for part in (speech(rng.uniform(0.5, 6)), pause(rng.uniform(0.02, 1)))]
    pieces = cut(np.concatenate(parts), longest=7.0)
    assert max(piece.end - piece.start for piece in pieces) <= 7.0


def test_silence_is_known():
    pieces = cut(np.zeros(20 * RATE, dtype=np.float32), longest=6.0)
    assert all(piece.is_silent for piece in pieces)
    assert pieces[-1].end == 20.0
    assert not cut(speech(1.0))[0].is_silent


def test_impossible_settings_are_refused():
    with pytest.raises(UsageError, match="at most half"):
        Cutting(longest=6.0, overlap=3.5)
    with pytest.raises(UsageError, match="at least 1 s"):
        Cutting(longest=0.5, overlap=0.0)

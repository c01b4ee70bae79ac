"""Long recordings in chunks: where nobody speaks if possible, overlapping if not."""

from __future__ import annotations

import numpy as np
import pytest

from sonosco_like.errors import UsageError
from sonosco_like.inference.audio_stream import Chunk, Segmenter

RATE = 8000


def speech(seconds: float, seed: int = 0) -> np.ndarray:
    """Noise as loud as speech."""
    return np.random.default_rng(seed).normal(scale=0.1, size=int(seconds * RATE)).astype(np.float32)


def pause(seconds: float) -> np.ndarray:
    return speech(seconds, 1) * 0.01


def cut(samples: np.ndarray, block: float = 3.0, **settings) -> list[Chunk]:
    size = int(block * RATE)
    blocks = [samples[begin : begin + size] for begin in range(0, len(samples), size)]
    return list(Segmenter(**settings).chunks(blocks, RATE))


def test_what_is_short_enough_stays_whole():
    (chunk,) = cut(speech(15.0), longest=15.0)
    assert (chunk.start, chunk.end, chunk.overlaps) == (0.0, 15.0, False)


def test_pieces_end_in_pauses_and_lose_nothing():
    samples = np.concatenate([speech(4), pause(0.6), speech(4), pause(0.5), speech(4), pause(0.6), speech(4)])
    chunks = cut(samples, longest=6.0)
    assert [round(chunk.end, 1) for chunk in chunks] == [4.3, 8.8, 13.4, 17.7]
    assert not any(chunk.overlaps for chunk in chunks)
    assert np.array_equal(np.concatenate([chunk.samples_N for chunk in chunks]), samples)


def test_a_pause_between_words_will_do_where_there_is_none_between_phrases():
    samples = np.concatenate([speech(3), pause(0.2), speech(2), pause(0.15), speech(5)])
    first = cut(samples, longest=6.0)[0]
    assert first.end == pytest.approx(3.1, abs=0.03)


def test_without_a_pause_pieces_overlap():
    samples = speech(20)
    chunks = cut(samples, longest=6.0, overlap=1.5)
    assert [chunk.start for chunk in chunks] == [0.0, 4.5, 9.0, 13.5, 18.0][: len(chunks)]
    assert [chunk.overlaps for chunk in chunks] == [False] + [True] * (len(chunks) - 1)
    assert chunks[-1].end == 20.0
    for chunk in chunks:
        part = samples[round(chunk.start * RATE) : round(chunk.end * RATE)]
        assert np.array_equal(chunk.samples_N, part)


def test_how_the_recording_comes_in_changes_nothing():
    samples = np.concatenate([speech(4), pause(0.6), speech(9), pause(0.6), speech(4)])
    whole, blocks = cut(samples, 100.0, longest=5.0), cut(samples, 0.7, longest=5.0)
    assert [(chunk.start, chunk.end) for chunk in whole] == [(chunk.start, chunk.end) for chunk in blocks]


def test_no_piece_is_longer_than_asked():
    rng = np.random.default_rng(0)
    parts = [part for _ in range(20) for part in (speech(rng.uniform(0.5, 6)), pause(rng.uniform(0.02, 1)))]
    chunks = cut(np.concatenate(parts), longest=7.0)
    assert max(chunk.end - chunk.start for chunk in chunks) <= 7.0


def test_silence_is_known():
    chunks = cut(np.zeros(20 * RATE, dtype=np.float32), longest=6.0)
    assert all(chunk.is_silent for chunk in chunks)
    assert chunks[-1].end == 20.0
    assert not cut(speech(1.0))[0].is_silent


def test_impossible_settings_are_refused():
    with pytest.raises(UsageError, match="at most half"):
        Segmenter(longest=6.0, overlap=3.5)
    with pytest.raises(UsageError, match="at least 1 s"):
        Segmenter(longest=0.5, overlap=0.0)

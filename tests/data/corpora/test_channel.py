"""Rooms, microphones and noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonosco_like.data.corpora.channel import SAMPLE_RATE, _convolve, _quick_size, draw_channel
from sonosco_like.errors import DataError


def buzz(seconds: float = 1.0) -> np.ndarray:
    """A voice of a second between two silences."""
    times = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    voice = sum(np.sin(2 * np.pi * 150 * harmonic * times) / harmonic for harmonic in range(1, 20))
    silence = np.zeros(SAMPLE_RATE // 4)
    return np.concatenate([silence, voice, silence]).astype(np.float32)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), variety=st.floats(0.0, 1.0))
def test_a_recording_has_the_same_length_does_not_clip_and_is_not_silent(seed, variety):
    random = np.random.default_rng(seed)
    voice = buzz()
    samples = draw_channel(random, variety).record(voice, random)
    assert samples.dtype == np.int16
    assert len(samples) == len(voice)
    assert 300 < np.abs(samples.astype(int)).max() < 32767
    assert abs(samples.astype(float).mean()) < 20


def test_variety_zero_is_one_quiet_studio_and_variety_one_is_many_places():
    voice = buzz()

    def noise_floors(variety):
        channels = [draw_channel(np.random.default_rng(seed), variety) for seed in range(12)]
        recorded = [channel.record(voice, np.random.default_rng(0)).astype(float) for channel in channels]
        floors = [np.std(samples[: SAMPLE_RATE // 8]) / np.std(samples) for samples in recorded]
        return 20 * np.log10(np.array(floors))

    quiet, mixed = noise_floors(0.0), noise_floors(1.0)
    assert quiet.max() < -50
    assert quiet.max() - quiet.min() < 5
    assert mixed.max() - mixed.min() > 15


def test_the_same_generator_gives_the_same_samples():
    recorded = []
    for _ in range(2):
        random = np.random.default_rng(3)
        recorded.append(draw_channel(random, 1.0).record(buzz(), random))
    assert np.array_equal(*recorded)


def test_a_silent_voice_is_an_error():
    random = np.random.default_rng(0)
    with pytest.raises(DataError, match="silent"):
        draw_channel(random, 1.0).record(np.zeros(1000, np.float32), random)


@given(size=st.integers(1, 10**6))
def test_quick_sizes_are_large_enough_and_not_much_larger(size):
    assert size <= _quick_size(size) <= 1.5 * size + 1


@given(length=st.integers(1, 300), taps=st.integers(1, 300))
def test_convolution_is_that_of_numpy(length, taps):
    random = np.random.default_rng(length + 1000 * taps)
    samples = random.standard_normal(length).astype(np.float32)
    response = random.standard_normal(taps).astype(np.float32)
    expected = np.convolve(samples, response)[:length]
    assert np.allclose(_convolve(samples, response), expected, atol=1e-3)

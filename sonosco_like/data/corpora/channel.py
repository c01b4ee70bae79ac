"""The recording of a synthetic speaker: room, microphone, background noise and loudness, all drawn from a generator.

A recogniser trained on clean synthetic speech learns the synthesiser; trained on speech from many rooms and
microphones, it also understands people.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sonosco_like.errors import DataError

SAMPLE_RATE = 16_000
Samples = NDArray[np.float32]
_TAPS = 512  # length of a microphone's filter
_LOUDEST = 0.95  # of full scale; nothing clips


@dataclass(frozen=True, slots=True)
class Channel:
    """One speaker's room and microphone. `noise_ratio` is the noise's level relative to the speech."""

    response: Samples
    noise_response: Samples
    noise_ratio: float
    level: float

    def record(self, voice: Samples, random: Generator) -> NDArray[np.int16]:
        """The voice as the microphone records it, with the same length, as 16-bit samples."""
        noise = random.standard_normal(len(voice), np.float32) * np.float32(self.noise_ratio)
        recorded = _convolve(voice / _loudness(voice), self.response) + _convolve(noise, self.noise_response)
        recorded *= min(self.level, _LOUDEST / float(np.abs(recorded).max()))
        samples: NDArray[np.int16] = np.rint(recorded * np.iinfo(np.int16).max).astype(np.int16)
        return samples


def draw_channel(random: Generator, variety: float) -> Channel:
    """A room and microphone; `variety` 0 is always the same quiet studio, 1 anything from there to a bad telephone."""
    room, microphone = _draw_room(random, variety), _draw_microphone(random, variety)
    return Channel(
        response=_normalize_energy(_convolve(np.pad(room, (0, _TAPS)), microphone)),
        noise_response=_normalize_energy(_tilt_filter(random.uniform(-9.0, 0.0))),
        noise_ratio=_from_decibel(-60.0 + variety * random.uniform(0.0, 42.0)),
        level=_from_decibel(-23.0 + variety * random.uniform(-14.0, 6.0)),
    )


def _draw_room(random: Generator, variety: float) -> Samples:
    """An impulse, then exponentially decaying noise: the simplest model of a room."""
    seconds_to_60_decibel = random.uniform(0.08, 0.6)
    reverberation = variety * _from_decibel(random.uniform(-24.0, 0.0))
    times = np.arange(int(seconds_to_60_decibel * SAMPLE_RATE)) / SAMPLE_RATE
    tail = random.standard_normal(len(times)) * np.exp(-6.9 * times / seconds_to_60_decibel)
    delay = int(random.uniform(0.001, 0.01) * SAMPLE_RATE)
    room = np.concatenate([np.zeros(delay), tail * reverberation / np.sqrt(np.sum(tail**2))])
    room[0] = 1.0
    return room.astype(np.float32)


def _draw_microphone(random: Generator, variety: float) -> Samples:
    """A linear-phase filter with a smooth random response; about one in four has only the telephone band."""
    bands = np.array([0.0, 60.0, 150.0, 400.0, 1000.0, 2500.0, 5000.0, 8000.0])
    gains = random.normal(0.0, 4.0, len(bands))
    gains[0] = -40.0  # no microphone records a constant pressure
    if random.random() < 0.25:
        gains += np.array([-30.0, -24.0, -6.0, 0.0, 0.0, 0.0, -20.0, -30.0])
    return _make_filter(bands, variety * gains)


def _tilt_filter(decibel_per_octave: float) -> Samples:
    bands = np.array([0.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3840.0, 8000.0])
    octaves = np.log2(np.maximum(bands, 60.0) / 60.0)
    return _make_filter(bands, decibel_per_octave * octaves)


def _make_filter(bands: NDArray[np.float64], gains: NDArray[np.float64]) -> Samples:
    """A filter with these gains in decibels at these frequencies, interpolated between them."""
    frequencies = np.linspace(0.0, SAMPLE_RATE / 2, _TAPS // 2 + 1)
    magnitude = 10.0 ** (np.interp(frequencies, bands, gains) / 20.0)
    taps = np.roll(np.fft.irfft(magnitude), _TAPS // 2) * np.hanning(_TAPS)
    return taps.astype(np.float32)


def _convolve(samples: Samples, response: Samples) -> Samples:
    """The filtered samples, with the same length."""
    size = _quick_size(len(samples) + len(response) - 1)
    spectrum = np.fft.rfft(samples, size) * np.fft.rfft(response, size)
    return np.fft.irfft(spectrum, size)[: len(samples)].astype(np.float32)


def _quick_size(size: int) -> int:
    """The next size with a fast Fourier transform: a power of two, or a small odd number times a power of two."""
    return min(odd << max(0, (-(-size // odd) - 1).bit_length()) for odd in (1, 3, 5, 9, 15))


def _normalize_energy(response: Samples) -> Samples:
    """The same filter with the energy of an impulse."""
    scaled: Samples = response / np.sqrt(np.sum(response**2))
    return scaled


def _loudness(samples: Samples) -> float:
    """The root mean square of the parts with speech."""
    active = samples[np.abs(samples) > 0.05 * np.abs(samples).max()]
    if len(active) == 0:
        raise DataError("A synthetic recording is silent; this voice cannot speak that text.")
    return float(np.sqrt(np.mean(active**2)))


def _from_decibel(value: float) -> float:
    return float(10.0 ** (value / 20.0))

"""Augmentations that mix in other recordings: noise, and the echo of rooms (which can also be made up).

Shape suffix: N samples.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from sonosco_like.data.augment import WaveformAugmentation, check_range
from sonosco_like.data.augment_waveform import mixed, power
from sonosco_like.data.framing import Floats
from sonosco_like.data.recordings import Excerpt, recordings
from sonosco_like.errors import UsageError
from sonosco_like.serialization import serializable


@serializable
class NoiseFiles(WaveformAugmentation):
    """Add a drawn part of a drawn noise recording at a drawn ratio of speech to noise; a short one is repeated.

    `files` are audio files, folders of them or manifests. They are looked up when first needed, so that a trained model
    can be loaded where the noise is not.
    """

    files: Path | list[Path]
    snr_db: tuple[float, float] = (5.0, 30.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("snr_db", self.snr_db)

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        """The samples with noise."""
        noise = self._noises[random.integers(len(self._noises))]
        place, snr_db = random.random(), random.uniform(*self.snr_db)
        return mixed(samples_N, _part(noise, len(samples_N), sample_rate, place), snr_db)

    @functools.cached_property
    def _noises(self) -> list[Excerpt]:
        return recordings(self.files)


def _part(noise: Excerpt, size: int, sample_rate: int, place: float) -> Floats:
    """`size` samples of a recording; `place` in [0, 1) says from where."""
    spare = noise.seconds() - size / sample_rate
    if spare > 0:
        noise_N = noise.read(sample_rate, start=place * spare, duration=size / sample_rate)
    else:
        noise_N = noise.read(sample_rate)
        noise_N = np.roll(noise_N, -int(place * len(noise_N)))
    return np.resize(noise_N, size)


@serializable
class Reverberation(WaveformAugmentation):
    """Let it sound as in a room: a drawn impulse response from `responses`, or a made-up one if there are none.

    A made-up room is the direct sound and a tail of noise that falls by 60 dB within a drawn `decay_seconds`, softer
    than the direct sound by a drawn number of decibels `direct_db` (Polack's model). Length, loudness and the place of
    the direct sound are kept.
    """

    responses: Path | list[Path] | None = None
    decay_seconds: tuple[float, float] = (0.1, 0.6)
    direct_db: tuple[float, float] = (0.0, 15.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("decay_seconds", self.decay_seconds, above=0)
        check_range("direct_db", self.direct_db)

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        """The samples in the drawn room."""
        response_N = self._drawn_response(sample_rate, random)
        direct = int(np.argmax(np.abs(response_N)))
        from scipy.signal import oaconvolve  # takes a second to import

        wet_N: Floats = oaconvolve(samples_N, response_N)[direct : direct + len(samples_N)]
        loudness = power(wet_N)
        return wet_N * np.float32(np.sqrt(power(samples_N) / loudness) if loudness else 1.0)

    def _drawn_response(self, sample_rate: int, random: np.random.Generator) -> Floats:
        if self.responses is None:
            return synthetic_response(
                random.uniform(*self.decay_seconds), random.uniform(*self.direct_db), sample_rate, random
            )
        return _response(self._rooms[random.integers(len(self._rooms))], sample_rate)

    @functools.cached_property
    def _rooms(self) -> list[Excerpt]:
        assert self.responses is not None
        return recordings(self.responses)


def synthetic_response(decay_seconds: float, direct_db: float, sample_rate: int, random: np.random.Generator) -> Floats:
    """The impulse response of a made-up room: the direct sound, then noise that dies away."""
    size = max(2, round(decay_seconds * sample_rate))
    fall_N = np.exp(np.linspace(0, -np.log(1000), size, dtype=np.float32))
    response_N = random.standard_normal(size, dtype=np.float32) * fall_N
    response_N[0] = 0
    response_N *= np.float32(np.sqrt(10 ** (-direct_db / 10) / np.square(response_N).sum()))
    response_N[0] = 1
    return response_N


@functools.lru_cache(maxsize=256)
def _response(room: Excerpt, sample_rate: int) -> Floats:
    response_N = room.read(sample_rate)
    if not response_N.any():
        raise UsageError(f"The impulse response {room.path} is silent. Take it out of `responses`.")
    return response_N

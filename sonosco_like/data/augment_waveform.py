"""Augmentations of samples that need nothing but the samples: speed, tempo, pitch, gain, shift, white noise.

Shape suffix: N samples.
"""

from __future__ import annotations

import numpy as np

from sonosco_like.data.augment import WaveformAugmentation, check_range
from sonosco_like.data.framing import Floats
from sonosco_like.data.stretching import faster, higher, shortened
from sonosco_like.errors import UsageError
from sonosco_like.serialization import serializable


@serializable
class SpeedPerturbation(WaveformAugmentation):
    """Play at one of a few speeds (Ko et al. 2015), which changes length and pitch as a tape would."""

    factors: tuple[float, ...] = (0.9, 1.0, 1.1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.factors or not all(0 < factor < np.inf for factor in self.factors):
            raise UsageError(f"`factors` must be speeds greater than 0, such as [0.9, 1.0, 1.1]; got {self.factors}.")

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        """The samples at the drawn speed."""
        return faster(samples_N, self.factors[random.integers(len(self.factors))])


@serializable
class TempoPerturbation(WaveformAugmentation):
    """Speak faster or slower at the same pitch; a factor of 1.1 makes the utterance 1.1 times shorter."""

    factor: tuple[float, float] = (0.85, 1.15)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("factor", self.factor, above=0)

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        """The samples at the drawn tempo."""
        return shortened(samples_N, random.uniform(*self.factor), sample_rate)


@serializable
class PitchShift(WaveformAugmentation):
    """Speak higher or lower in the same time, by a number of semitones."""

    semitones: tuple[float, float] = (-2.0, 2.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("semitones", self.semitones)

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        """The samples at the drawn pitch."""
        return higher(samples_N, 2 ** (random.uniform(*self.semitones) / 12), sample_rate)


@serializable
class Gain(WaveformAugmentation):
    """Make it louder or softer, by a number of decibels; nothing is clipped."""

    decibels: tuple[float, float] = (-10.0, 6.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("decibels", self.decibels)

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        """The samples at the drawn loudness."""
        return samples_N * np.float32(10 ** (random.uniform(*self.decibels) / 20))


@serializable
class TimeShift(WaveformAugmentation):
    """Move the audio earlier or later by up to `seconds`; what leaves at one end comes in as silence at the other."""

    seconds: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.seconds < np.inf:
            raise UsageError(f"`seconds` must be greater than 0, got {self.seconds}.")

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        """The samples moved by the drawn time."""
        shift = round(random.uniform(-self.seconds, self.seconds) * sample_rate)
        shifted_N = np.zeros_like(samples_N)
        if shift >= 0:
            shifted_N[shift:] = samples_N[: max(0, len(samples_N) - shift)]
        else:
            shifted_N[:shift] = samples_N[-shift:]
        return shifted_N


@serializable
class WhiteNoise(WaveformAugmentation):
    """Add Gaussian noise at a drawn ratio of speech to noise; silence stays silent."""

    snr_db: tuple[float, float] = (10.0, 40.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("snr_db", self.snr_db)

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        """The samples with noise."""
        snr_db = random.uniform(*self.snr_db)
        return mixed(samples_N, random.standard_normal(len(samples_N), dtype=np.float32), snr_db)


def power(samples_N: Floats) -> float:
    """Mean square of a signal."""
    return float(np.square(samples_N, dtype=np.float64).mean())


def mixed(speech_N: Floats, noise_N: Floats, snr_db: float) -> Floats:
    """Speech with noise of the same length, whose level is set by the ratio; unchanged if either of them is silent."""
    speech, noise = power(speech_N), power(noise_N)
    if not speech or not noise:
        return speech_N.copy()
    return speech_N + noise_N * np.float32(np.sqrt(speech / noise / 10 ** (snr_db / 10)))

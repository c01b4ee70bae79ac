"""Signals whose pitch, length and level are known, and measures of them."""

from __future__ import annotations

import numpy as np
import torch

RATE = 16000


def voice(seconds: float, pitch: float = 150.0, rate: int = RATE) -> torch.Tensor:
    """A steady vowel-like buzz: harmonics of one pitch, falling with frequency."""
    time_N = np.arange(round(seconds * rate)) / rate
    harmonics = range(1, int(3500 / pitch))
    samples_N = sum(np.cos(2 * np.pi * pitch * h * time_N + h * h) / h for h in harmonics)
    return torch.from_numpy((0.1 * samples_N).astype(np.float32))


def pitch_of(samples_N: torch.Tensor, rate: int = RATE) -> float:
    """The frequency whose period the signal repeats best, between 60 and 400 Hz, to a fraction of a sample."""
    samples = samples_N.double().numpy()
    samples = samples[len(samples) // 4 : 3 * len(samples) // 4]
    spectrum = np.abs(np.fft.rfft(samples, 4 * len(samples))) ** 2
    likeness = np.fft.irfft(spectrum)[: rate // 50]
    lag = rate // 400 + int(np.argmax(likeness[rate // 400 : rate // 60]))
    before, at, after = likeness[lag - 1 : lag + 2]
    return rate / (lag + 0.5 * (before - after) / (before - 2 * at + after))


def level_db(samples_N: torch.Tensor) -> float:
    """Mean power in decibels."""
    return 10 * np.log10(float(samples_N.double().square().mean()))


def snr_db(clean_N: torch.Tensor, noisy_N: torch.Tensor) -> float:
    """The ratio of a signal to what was added to it."""
    return level_db(clean_N) - level_db(noisy_N.double() - clean_N.double())

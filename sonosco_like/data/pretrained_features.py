"""The features that pretrained encoders expect: raw samples for Wav2Vec2 and HuBERT, and the log-mel bands of Whisper.

Their values are those of the reference implementation, so they need no normalization of the dataset behind them.

Shape suffixes: N samples, T frames, F features or frequencies, M mel bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from sonosco_like.data.audio import Floats
from sonosco_like.data.features import FeatureExtractor, to_array
from sonosco_like.errors import UsageError
from sonosco_like.serialization import serializable
from sonosco_like.torchaudio_import import import_torchaudio

VARIANCE_FLOOR = 1e-7  # of the samples
WHISPER_RATE, WHISPER_WINDOW, WHISPER_STEP = 16000, 400, 160
POWER_FLOOR, RANGE = 1e-10, 8.0  # a value is at most so far below the highest one of its utterance


@serializable
class Waveform(FeatureExtractor):
    """The samples themselves, one value per frame, for an encoder that begins with convolutions over them.

    `normalize` gives each utterance mean 0 and variance 1. Whether an encoder was trained with it says the
    `do_normalize` of its folder; `sonosco weights FOLDER` prints it.
    """

    normalize: bool = True

    def __post_init__(self) -> None:
        if self.sample_rate <= 0:
            raise UsageError(f"`sample_rate` must be positive, got {self.sample_rate}.")

    @property
    def size(self) -> int:
        return 1

    @property
    def frame_shift(self) -> float:
        return 1 / self.sample_rate

    def frames(self, seconds: float) -> int:
        return max(1, round(seconds * self.sample_rate))

    def __call__(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        return [torch.from_numpy(self._values(to_array(each_N))[:, None]) for each_N in waveforms]

    def _values(self, samples_N: Floats) -> Floats:
        if not self.normalize:
            return samples_N.copy()
        centred_N = samples_N - samples_N.mean(dtype=np.float64)
        normalized_N: Floats = (centred_N / np.sqrt(np.square(centred_N).mean() + VARIANCE_FLOOR)).astype(np.float32)
        return normalized_N


@serializable
class WhisperLogMel(FeatureExtractor):
    """The log-mel bands of Whisper: Slaney's mels, a logarithm to base 10, and a range of 8 below the loudest value.

    `padded_seconds: 30` fills each utterance with silence to 30 s, as Whisper does itself; 0 does not. The recordings
    must have 16,000 samples per second, or are resampled to it.
    """

    mels: int = 80
    padded_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.sample_rate != WHISPER_RATE:
            raise UsageError(f"WhisperLogMel has a `sample_rate` of {WHISPER_RATE}, got {self.sample_rate}.")
        if not 1 <= self.mels <= WHISPER_WINDOW // 2 or self.padded_seconds < 0:
            raise UsageError(
                f"`mels` must be from 1 to {WHISPER_WINDOW // 2} and `padded_seconds` not negative, got {self.mels} "
                f"and {self.padded_seconds:g}."
            )

    @property
    def size(self) -> int:
        return self.mels

    @property
    def frame_shift(self) -> float:
        return WHISPER_STEP / WHISPER_RATE

    @property
    def least_samples(self) -> int:
        """The length to which a shorter waveform is completed with silence."""
        return max(WHISPER_WINDOW // 2 + 1, round(self.padded_seconds * WHISPER_RATE))

    def frames(self, seconds: float) -> int:
        return max(round(seconds * WHISPER_RATE), self.least_samples) // WHISPER_STEP

    def __call__(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        return [self._values(torch.from_numpy(to_array(each_N))) for each_N in waveforms]

    def _values(self, samples_N: Tensor) -> Tensor:
        samples_N = nn.functional.pad(samples_N, (0, max(0, self.least_samples - len(samples_N))))
        spectrum_FT = torch.stft(
            samples_N, WHISPER_WINDOW, WHISPER_STEP, window=torch.hann_window(WHISPER_WINDOW), return_complex=True
        )
        power_FT = spectrum_FT[:, :-1].abs().square().contiguous()
        mels_MT = (whisper_mels(self.mels) @ power_FT).clamp(min=POWER_FLOOR).log10()
        return ((torch.maximum(mels_MT, mels_MT.max() - RANGE) + 4.0) / 4.0).T.contiguous()


@lru_cache(maxsize=4)
def whisper_mels(mels: int) -> Tensor:
    """Matrix_MF from a power spectrum to Slaney's mel bands, as torchaudio has it."""
    matrix_FM: Tensor = import_torchaudio().functional.melscale_fbanks(
        WHISPER_WINDOW // 2 + 1, 0.0, WHISPER_RATE / 2, mels, WHISPER_RATE, norm="slaney", mel_scale="slaney"
    )
    return matrix_FM.T.contiguous()

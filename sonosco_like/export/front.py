"""Features and normalization as parts of a graph: matrix products and convolutions on padded batches, no FFT.

They give the numbers of `data.features` and `data.normalization` up to rounding, also for utterances of different
lengths in one batch. Every size is a function of the shape of the input, so that a graph keeps its axes free.

Shape suffixes as in `records`; here also P places of a padded waveform, W samples of a frame, K rows of a transform, M
mel bands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor, nn

from sonosco_like.data.audio import Floats
from sonosco_like.data.features import (
    MFCC,
    FeatureExtractor,
    FramedExtractor,
    LinearSpectrogram,
    LogMel,
    make_cepstral_matrix,
    make_mel_matrix,
    make_window,
)
from sonosco_like.data.normalization import GlobalNormalization, Normalization, UtteranceNormalization
from sonosco_like.data.pretrained_features import (
    POWER_FLOOR,
    RANGE,
    VARIANCE_FLOOR,
    WHISPER_STEP,
    WHISPER_WINDOW,
    Waveform,
    WhisperLogMel,
    whisper_mels,
)
from sonosco_like.errors import UsageError
from sonosco_like.tensors import length_mask, zero_padding

_FLOOR = float(np.finfo(np.float32).eps)
_SMALLEST_DEVIATION = 1e-5


class Transform(nn.Module, ABC):
    """From padded waveforms to features, for waveforms of any lengths in one batch."""

    @property
    @abstractmethod
    def least_samples(self) -> int:
        """The shortest waveform that the graph can take; a shorter one must be padded with zeros to this length."""

    @abstractmethod
    def forward(self, samples_BN: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(features_BTF, feature_lengths_B), with arbitrary values in the padding."""


class FrameTransform(Transform):
    """Cuts padded waveforms into frames and multiplies each frame by a matrix, as one convolution."""

    def __init__(self, extractor: FramedExtractor) -> None:
        super().__init__()
        rate = extractor.sample_rate
        self.step = round(extractor.step_seconds * rate, 6).__round__()
        window_W = make_window(extractor.window, int(round(extractor.window_seconds * rate, 6)))
        self.size = len(window_W)
        matrix_KW = self._matrix(extractor, window_W.astype(np.float64))
        self.register_buffer("matrix", torch.from_numpy(matrix_KW.astype(np.float32))[:, None])

    @abstractmethod
    def frame_counts(self, lengths_B: Tensor) -> Tensor:
        """The number of frames of waveforms of these lengths."""

    @abstractmethod
    def _matrix(self, extractor: FramedExtractor, window_W: Floats) -> Floats:
        """The rows that every frame is multiplied by."""

    @abstractmethod
    def _pad(self, samples_BN: Tensor, lengths_B: Tensor) -> Tensor:
        """The waveforms with their edges filled in, so that frames begin at multiples of the step."""

    @abstractmethod
    def _features(self, spectrum_BKT: Tensor) -> Tensor:
        """The features of the transformed frames."""

    def forward(self, samples_BN: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        samples_BP = self._pad(samples_BN, lengths_B)
        spectrum_BKT = nn.functional.conv1d(samples_BP[:, None], self.get_buffer("matrix"), stride=self.step)
        return self._features(spectrum_BKT), self.frame_counts(lengths_B)


class LogMelTransform(FrameTransform):
    """`LogMel`, and `MFCC` with the cosine transform behind it."""

    def __init__(self, extractor: LogMel) -> None:
        super().__init__(extractor)
        self.snip_edges = extractor.snip_edges
        rate, high = extractor.sample_rate, extractor.high_frequency
        high = high if high > 0 else rate / 2 + high
        mels_MF = make_mel_matrix(extractor.mels, _fft_size(self.size), rate, extractor.low_frequency, high).toarray()
        self.register_buffer("mels", torch.from_numpy(mels_MF * np.float32(extractor.scale**2)))
        self.cepstral: Tensor | None
        self.register_buffer("cepstral", None)
        if isinstance(extractor, MFCC):
            cepstral_FM = make_cepstral_matrix(extractor.coefficients, extractor.mels, extractor.lifter).toarray()
            self.cepstral = torch.from_numpy(cepstral_FM)

    @property
    def least_samples(self) -> int:
        return self.size if self.snip_edges else self.step

    def frame_counts(self, lengths_B: Tensor) -> Tensor:
        if self.snip_edges:
            return 1 + torch.div((lengths_B - self.size).clamp(min=0), self.step, rounding_mode="floor")
        return torch.div(lengths_B + self.step // 2, self.step, rounding_mode="floor").clamp(min=1)

    def _matrix(self, extractor: FramedExtractor, window_W: Floats) -> Floats:
        assert isinstance(extractor, LogMel)
        size = len(window_W)
        prepared_WW = np.eye(size) - extractor.preemphasis * np.eye(size, k=-1)
        prepared_WW[0, 0] = 1 - extractor.preemphasis
        if extractor.remove_offset:
            prepared_WW = prepared_WW - prepared_WW.mean(axis=1, keepdims=True)
        return _fourier_matrix(size, _fft_size(size)) * window_W @ prepared_WW

    def _pad(self, samples_BN: Tensor, lengths_B: Tensor) -> Tensor:
        if self.snip_edges:
            return zero_padding(samples_BN[:, :, None], lengths_B)[:, :, 0]
        before = self.size // 2 - self.step // 2
        after = self.size - self.step + self.step // 2 - before
        return mirror_edges(samples_BN, lengths_B, before, after, repeat_edge=True)

    def _features(self, spectrum_BKT: Tensor) -> Tensor:
        real_BFT, imaginary_BFT = spectrum_BKT.chunk(2, dim=1)
        mels_BMT = self.get_buffer("mels") @ (real_BFT.square() + imaginary_BFT.square())
        mels_BMT = mels_BMT.clamp(min=_FLOOR).log()
        if self.cepstral is not None:
            mels_BMT = self.cepstral @ mels_BMT
        return mels_BMT.transpose(1, 2)


class LinearTransform(FrameTransform):
    """`LinearSpectrogram`."""

    @property
    def least_samples(self) -> int:
        return 1

    def frame_counts(self, lengths_B: Tensor) -> Tensor:
        return 1 + torch.div(lengths_B, self.step, rounding_mode="floor")

    def _matrix(self, extractor: FramedExtractor, window_W: Floats) -> Floats:
        return _fourier_matrix(len(window_W), len(window_W)) * window_W

    def _pad(self, samples_BN: Tensor, lengths_B: Tensor) -> Tensor:
        before = self.size // 2
        return mirror_edges(samples_BN, lengths_B, before, self.size - before, repeat_edge=False)

    def _features(self, spectrum_BKT: Tensor) -> Tensor:
        real_BFT, imaginary_BFT = spectrum_BKT.chunk(2, dim=1)
        return (real_BFT.square() + imaginary_BFT.square()).sqrt().log1p().transpose(1, 2)


class WaveformTransform(Transform):
    """`Waveform`."""

    def __init__(self, extractor: Waveform) -> None:
        super().__init__()
        self.normalize = extractor.normalize

    @property
    def least_samples(self) -> int:
        return 1

    def forward(self, samples_BN: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        if self.normalize:
            mask_BN = length_mask(lengths_B, samples_BN.shape[1]).to(samples_BN.dtype)
            count_B1 = lengths_B[:, None].to(samples_BN.dtype)
            centred_BN = (samples_BN - (samples_BN * mask_BN).sum(1, keepdim=True) / count_B1) * mask_BN
            variance_B1 = centred_BN.square().sum(1, keepdim=True) / count_B1
            samples_BN = centred_BN * torch.rsqrt(variance_B1 + VARIANCE_FLOOR)
        return samples_BN[:, :, None], lengths_B


class WhisperTransform(Transform):
    """`WhisperLogMel`."""

    def __init__(self, extractor: WhisperLogMel) -> None:
        super().__init__()
        self.least = extractor.least_samples
        window_W = torch.hann_window(WHISPER_WINDOW, dtype=torch.float64).numpy()
        matrix_KW = _fourier_matrix(WHISPER_WINDOW, WHISPER_WINDOW) * window_W
        self.register_buffer("matrix", torch.from_numpy(matrix_KW.astype(np.float32))[:, None])
        self.register_buffer("mels", whisper_mels(extractor.mels))

    @property
    def least_samples(self) -> int:
        return self.least

    def forward(self, samples_BN: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        samples_BN = zero_padding(samples_BN[:, :, None], lengths_B)[:, :, 0]
        lengths_B = lengths_B.clamp(min=self.least)
        half = WHISPER_WINDOW // 2
        samples_BP = mirror_edges(samples_BN, lengths_B, half, half, repeat_edge=False)
        spectrum_BKT = nn.functional.conv1d(samples_BP[:, None], self.get_buffer("matrix"), stride=WHISPER_STEP)
        counts_B = torch.div(lengths_B, WHISPER_STEP, rounding_mode="floor")
        spectrum_BKT = spectrum_BKT[:, :, : samples_BN.shape[1] // WHISPER_STEP]
        real_BFT, imaginary_BFT = spectrum_BKT.chunk(2, dim=1)
        mels_BMT = self.get_buffer("mels") @ (real_BFT.square() + imaginary_BFT.square())
        mels_BMT = mels_BMT.clamp(min=POWER_FLOOR).log10()
        padding_BT = ~length_mask(counts_B, mels_BMT.shape[2])
        highest_B11 = mels_BMT.masked_fill(padding_BT[:, None], float(np.log10(POWER_FLOOR))).amax((1, 2), keepdim=True)
        return ((torch.maximum(mels_BMT, highest_B11 - RANGE) + 4.0) / 4.0).transpose(1, 2), counts_B


def mirror_edges(samples_BN: Tensor, lengths_B: Tensor, before: int, after: int, repeat_edge: bool) -> Tensor:
    """samples_BP: each waveform mirrored outwards at its own two ends, as `data.features.reflect_pad`."""
    places_P = torch.arange(samples_BN.shape[1] + before + after, device=samples_BN.device) - before
    size_B1 = lengths_B[:, None].clamp(min=1)
    last_B1 = 2 * size_B1 - 1 if repeat_edge else (2 * size_B1 - 2).clamp(min=1)
    folded_BP = torch.remainder(places_P[None], last_B1 + 1 if repeat_edge else last_B1)
    return samples_BN.gather(1, torch.where(folded_BP < size_B1, folded_BP, last_B1 - folded_BP))


class UtteranceNorm(nn.Module):
    """`UtteranceNormalization`, over the real frames of each utterance."""

    def __init__(self, normalization: UtteranceNormalization) -> None:
        super().__init__()
        self.mean, self.variance = normalization.mean, normalization.variance
        self.axes = (1,) if normalization.per_feature else (1, 2)

    def forward(self, features_BTF: Tensor, lengths_B: Tensor) -> Tensor:
        """The normalised features."""
        mask_BT1 = length_mask(lengths_B, features_BTF.shape[1])[:, :, None].to(features_BTF.dtype)
        count_B11 = lengths_B[:, None, None].to(features_BTF.dtype)
        if len(self.axes) > 1:
            count_B11 = count_B11 * features_BTF.shape[2]
        mean_B1F = (features_BTF * mask_BT1).sum(self.axes, keepdim=True) / count_B11
        centred_BTF = (features_BTF - mean_B1F) * mask_BT1
        result_BTF = centred_BTF if self.mean else features_BTF
        if self.variance:
            deviation_B1F = (centred_BTF.square().sum(self.axes, keepdim=True) / count_B11).sqrt()
            result_BTF = result_BTF / deviation_B1F.clamp(min=_SMALLEST_DEVIATION)
        return result_BTF


class GlobalNorm(nn.Module):
    """`GlobalNormalization`, with the statistics of the training as constants."""

    def __init__(self, normalization: GlobalNormalization) -> None:
        super().__init__()
        mean_F, deviation_F = normalization.mean_F, normalization.variance_F.sqrt().clamp(min=_SMALLEST_DEVIATION)
        self.register_buffer("mean_F", (mean_F if normalization.mean else torch.zeros_like(mean_F)).float())
        self.register_buffer(
            "scale_F", (1 / deviation_F if normalization.variance else torch.ones_like(mean_F)).float()
        )

    def forward(self, features_BTF: Tensor, lengths_B: Tensor) -> Tensor:
        """The normalised features."""
        return (features_BTF - self.get_buffer("mean_F")) * self.get_buffer("scale_F")


class Front(nn.Module):
    """From the input of an exported graph to the input of the model."""

    def __init__(self, transform: Transform | None, normalization: nn.Module | None) -> None:
        super().__init__()
        self.transform, self.normalization = transform, normalization

    def forward(self, inputs: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(features_BTF, feature_lengths_B) with zeros in the padding; without a transform `inputs` are features."""
        features_BTF, feature_lengths_B = inputs, lengths_B
        if self.transform is not None:
            features_BTF, feature_lengths_B = self.transform(inputs, lengths_B)
        if self.normalization is not None:
            features_BTF = self.normalization(features_BTF, feature_lengths_B)
        return zero_padding(features_BTF, feature_lengths_B), feature_lengths_B


def make_transform(extractor: FeatureExtractor) -> Transform:
    """The features as a part of a graph; features that have no such form are a UsageError."""
    if type(extractor) in (LogMel, MFCC):
        return LogMelTransform(extractor)  # type: ignore[arg-type]
    if type(extractor) is LinearSpectrogram:
        return LinearTransform(extractor)
    if type(extractor) is Waveform:
        return WaveformTransform(extractor)
    if type(extractor) is WhisperLogMel:
        return WhisperTransform(extractor)
    raise UsageError(
        f"The features {type(extractor).__name__} cannot be a part of the exported graph: LogMel, MFCC, "
        f"LinearSpectrogram, Waveform and WhisperLogMel can. Export a graph that takes features: --input features."
    )


def make_normalization(normalization: Normalization | None) -> nn.Module | None:
    """The normalization as a part of a graph; one that has no such form is a UsageError."""
    if normalization is None:
        return None
    if type(normalization) is UtteranceNormalization:
        return UtteranceNorm(normalization)
    if type(normalization) is GlobalNormalization:
        return GlobalNorm(normalization)
    raise UsageError(
        f"The normalization {type(normalization).__name__} cannot be a part of the exported graph: "
        f"UtteranceNormalization and GlobalNormalization can."
    )


def _fft_size(samples: int) -> int:
    return 1 << (samples - 1).bit_length()


def _fourier_matrix(samples: int, fft_size: int) -> Floats:
    """matrix_KW: the cosines of all frequencies up to half the sample rate, then the sines."""
    angle_FW = 2 * np.pi / fft_size * np.arange(fft_size // 2 + 1)[:, None] * np.arange(samples)
    return np.concatenate([np.cos(angle_FW), np.sin(angle_FW)])

"""What a model hears: log-mel filter banks, MFCCs and linear spectrograms.

Shape suffixes: N samples, K frames of a block, W samples of a frame, F features, M mel bands.
"""

from __future__ import annotations

import numpy as np
import scipy.fft

from sonosco_like.data.feature_extractor import FeatureExtractor, FramedExtractor
from sonosco_like.data.filterbank import cepstral_matrix, mel_matrix
from sonosco_like.data.framing import Floats, WindowShape, emphasised, frame_view, mirrored
from sonosco_like.errors import UsageError
from sonosco_like.serialization import serializable

__all__ = ["MFCC", "FeatureExtractor", "LinearSpectrogram", "LogMel"]

_FLOOR = np.finfo(np.float32).eps  # Kaldi's floor under a logarithm


def _power(frames_KW: Floats) -> Floats:
    spectrum_KF = scipy.fft.rfft(frames_KW)
    power_KF: Floats = np.square(spectrum_KF.real)
    power_KF += np.square(spectrum_KF.imag)
    return power_KF


@serializable
class LogMel(FramedExtractor):
    """The log-mel filter bank of Kaldi (`compute-fbank-feats` without dither).

    Kaldi reads samples as 16-bit numbers: `scale: 32768` gives its values, the default those of tools that keep samples
    in [-1, 1]. A `high_frequency` of 0 or less counts down from half the sample rate. With `snip_edges` there are only
    frames that lie wholly within the audio (one if it is shorter than a window, completed with silence), else one per
    step, with the audio mirrored at its ends.
    """

    window: WindowShape = "povey"
    mels: int = 80
    low_frequency: float = 20.0
    high_frequency: float = 0.0
    preemphasis: float = 0.97
    remove_offset: bool = True
    snip_edges: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        nyquist = self.sample_rate / 2
        high = self.high_frequency if self.high_frequency > 0 else nyquist + self.high_frequency
        if self.mels < 1 or not 0 <= self.low_frequency < high <= nyquist or not 0 <= self.preemphasis <= 1:
            raise UsageError(
                f"`mels` must be at least 1, `preemphasis` from 0 to 1, and `low_frequency` and `high_frequency` must "
                f"enclose a range within 0 and {nyquist:g} Hz; got {self.mels}, {self.preemphasis}, "
                f"{self.low_frequency:g} and {self.high_frequency:g} (which means {high:g} Hz)."
            )
        self._frame_size = 1 << (len(self._window_W) - 1).bit_length()
        self._padded_window_W = np.pad(self._window_W, (0, self._frame_size - len(self._window_W)))
        mels_MF = mel_matrix(self.mels, self._frame_size, self.sample_rate, self.low_frequency, high)
        self._mels_MF = mels_MF * np.float32(self.scale**2)  # of a power

    @property
    def size(self) -> int:
        """Features per frame."""
        return self.mels

    def _count(self, samples: int) -> int:
        if self.snip_edges:
            return 1 + max(0, samples - len(self._window_W)) // self._step
        return max(1, (samples + self._step // 2) // self._step)

    def _completed(self, samples_N: Floats, needed: int) -> Floats:
        if self.snip_edges:
            return np.pad(samples_N[:needed], (0, max(0, needed - len(samples_N))))
        before = len(self._window_W) // 2 - self._step // 2
        return mirrored(samples_N, before, needed - before - len(samples_N), repeat_edge=True)

    def _block(self, signal_N: Floats, count: int) -> Floats:
        mels_MK: Floats = self._mels_MF @ _power(self._windowed(signal_N, count)).T
        np.maximum(mels_MK, _FLOOR, out=mels_MK)
        return np.log(mels_MK, out=mels_MK).T

    def _windowed(self, signal_N: Floats, count: int) -> Floats:
        """The frames as Kaldi prepares them: offset removed, emphasised, windowed, filled up with zeros for the FFT.

        Kaldi emphasises each frame by itself. Here it is done once for the overlapping frames, which is the same but
        for their first samples, and for the offset, of which a share remains. Frames are cut as long as the FFT wants
        them, and the window hides what is too much, because rows without gaps are computed faster.
        """
        size, kept = len(self._window_W), np.float32(1 - self.preemphasis)
        frames_KW = frame_view(signal_N, count, size, self._step)
        offset_K1 = np.zeros((count, 1), dtype=np.float32)
        if self.remove_offset:  # einsum sums rows in a third of the time of `mean`
            offset_K1[:, 0] = np.einsum("kw->k", frames_KW) * (kept / np.float32(size))
        longer_KW = frame_view(emphasised(signal_N, self.preemphasis), count, self._frame_size, self._step)
        result_KW = longer_KW - offset_K1
        result_KW[:, :1] = frames_KW[:, :1] * kept - offset_K1
        result_KW *= self._padded_window_W
        return result_KW


@serializable
class MFCC(LogMel):
    """Cepstral coefficients of the log-mel filter bank, as Kaldi's `compute-mfcc-feats --use-energy=false`."""

    mels: int = 23
    coefficients: int = 13
    lifter: float = 22.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.coefficients <= self.mels or self.lifter < 0:
            raise UsageError(
                f"`coefficients` must be from 1 to the number of mel bands ({self.mels}) and `lifter` not negative, "
                f"got {self.coefficients} and {self.lifter}."
            )
        self._cepstral_FM = cepstral_matrix(self.coefficients, self.mels, self.lifter)

    @property
    def size(self) -> int:
        """Features per frame."""
        return self.coefficients

    def _block(self, signal_N: Floats, count: int) -> Floats:
        cepstra_KF: Floats = (self._cepstral_FM @ super()._block(signal_N, count).T).T
        return cepstra_KF


@serializable
class LinearSpectrogram(FramedExtractor):
    """log(1 + magnitude) of a plain spectrogram, as Sonosco and DeepSpeech 2 hear: 161 frequencies at 16 kHz.

    Frames are centred on multiples of the step, with the audio mirrored at its ends (`librosa.stft` up to version 0.9).
    """

    window_seconds: float = 0.020
    window: WindowShape = "hamming"

    @property
    def size(self) -> int:
        """Features per frame."""
        return len(self._window_W) // 2 + 1

    def _count(self, samples: int) -> int:
        return 1 + samples // self._step

    def _completed(self, samples_N: Floats, needed: int) -> Floats:
        before = len(self._window_W) // 2
        return mirrored(samples_N, before, needed - before - len(samples_N), repeat_edge=False)

    def _block(self, signal_N: Floats, count: int) -> Floats:
        frames_KW = frame_view(signal_N, count, self._frame_size, self._step)
        magnitude_KF = np.sqrt(_power(frames_KW * self._window_W))
        return np.log1p(magnitude_KF, out=magnitude_KF)

"""Features of waveforms: log-mel filter banks, MFCCs and linear spectrograms, as Kaldi defines them.

Everything is computed with NumPy and SciPy, in blocks of frames that depend on the utterance alone; one thread computes
a block. So the bits of an utterance's features depend neither on its neighbours in a batch nor on the number of threads
or workers, and an hour of audio needs little more memory than its features.

Shape suffixes: N samples, T frames, K frames of a block, W samples of a frame, F features or frequencies, M mel bands,
C cepstral coefficients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeAlias, get_args

import numpy as np
import scipy.fft
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from sonosco_like.data.audio import Floats
from sonosco_like.errors import DataError, UsageError
from sonosco_like.serialization import serializable

_BLOCK = 256  # frames; their spectra stay in the processor's cache
_Block: TypeAlias = tuple[Floats, Floats]  # a signal, and the matrix for its features


@serializable
class FeatureExtractor(ABC):
    """Makes one matrix of features (time, feature) from each waveform.

    One sample of audio is enough for one frame; no sample at all is a `DataError`.
    """

    sample_rate: int = 16000

    @property
    @abstractmethod
    def size(self) -> int:
        """Features per frame."""

    @property
    @abstractmethod
    def frame_shift(self) -> float:
        """Seconds from one frame to the next."""

    @abstractmethod
    def frames(self, seconds: float) -> int:
        """The number of frames of a waveform of this length."""

    @abstractmethod
    def __call__(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        """One float32 matrix `features_TF` for each waveform `samples_N` at `sample_rate`, samples in [-1, 1]."""


@serializable
class FramedExtractor(FeatureExtractor):
    """Features of overlapping frames, which are independent of each other."""

    window_seconds: float = 0.025
    step_seconds: float = 0.010
    window: WindowShape = "hann"

    def __post_init__(self) -> None:
        if self.sample_rate <= 0 or not 0 < self.step_seconds <= self.window_seconds:
            raise UsageError(
                f"`sample_rate` must be positive and `step_seconds` between 0 and `window_seconds`, "
                f"got {self.sample_rate}, {self.step_seconds} and {self.window_seconds}."
            )
        if self.window not in WINDOW_SHAPES:
            raise UsageError(f"`window` must be one of {', '.join(WINDOW_SHAPES)}, got {self.window!r}.")
        self._step = _whole_samples(self.step_seconds * self.sample_rate)
        if not self._step:
            raise UsageError(f"A step of {self.step_seconds} s is less than one sample at {self.sample_rate} Hz.")
        self._window_W = make_window(self.window, _whole_samples(self.window_seconds * self.sample_rate))
        self._frame_size = len(self._window_W)  # samples that are cut for a frame

    @property
    def frame_shift(self) -> float:
        return self._step / self.sample_rate

    def frames(self, seconds: float) -> int:
        return self._frame_count(round(seconds * self.sample_rate))

    def __call__(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        features, blocks = [], []
        for waveform_N in waveforms:
            features_TF, own_blocks = self._plan_blocks(to_array(waveform_N))
            features.append(torch.from_numpy(features_TF))
            blocks += own_blocks
        _process_blocks(blocks, self._fill_block)
        return features

    def _plan_blocks(self, samples_N: Floats) -> tuple[Floats, list[_Block]]:
        """The matrix to fill, and its blocks, each with the signal from its first frame on."""
        count = self._frame_count(len(samples_N))
        signal_N = self._pad_edges(samples_N, (count - 1) * self._step + self._frame_size)
        features_TF = np.empty((count, self.size), dtype=np.float32)
        starts = range(0, count, _BLOCK)
        return features_TF, [(signal_N[start * self._step :], features_TF[start : start + _BLOCK]) for start in starts]

    def _fill_block(self, block: _Block) -> None:
        signal_N, features_KF = block
        needed = (len(features_KF) - 1) * self._step + self._frame_size
        features_KF[...] = self._block_features(signal_N[:needed], len(features_KF))

    @abstractmethod
    def _frame_count(self, samples: int) -> int:
        """The number of frames of `samples` samples; at least one."""

    @abstractmethod
    def _pad_edges(self, samples_N: Floats, needed: int) -> Floats:
        """The `needed` samples from the start of the first frame to the end of the last, edges filled in."""

    @abstractmethod
    def _block_features(self, signal_N: Floats, count: int) -> Floats:
        """The features of the `count` frames of a signal, which has no other samples."""


def _process_blocks(blocks: list[_Block], work: Callable[[_Block], None]) -> None:
    """Do the work on every block, on as many threads as torch may use; one thread works on a block."""
    threads = min(torch.get_num_threads(), len(blocks) // 2)
    if threads < 2:
        for block in blocks:
            work(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, blocks):
            pass


def _whole_samples(samples: float) -> int:
    """The number of whole samples, in spite of rounding errors in the last digits."""
    return int(round(samples, 6))


def to_array(waveform_N: Tensor) -> Floats:
    """The samples of a waveform; anything else is a DataError."""
    if waveform_N.ndim != 1 or not waveform_N.numel():
        raise DataError(
            f"Features need a waveform of one channel with at least one sample, "
            f"got a tensor of shape {tuple(waveform_N.shape)}."
        )
    return waveform_N.detach().to("cpu", torch.float32).numpy()


_FLOOR = np.finfo(np.float32).eps  # Kaldi's floor under a logarithm


def _power_spectrum(frames_KW: Floats) -> Floats:
    spectrum_KF = scipy.fft.rfft(frames_KW)
    power_KF: Floats = np.square(spectrum_KF.real)
    power_KF += np.square(spectrum_KF.imag)
    return power_KF


@serializable
class LogMel(FramedExtractor):
    """The log-mel filter bank of Kaldi (`compute-fbank-feats` without dither).

    Kaldi reads samples as 16-bit numbers: `scale: 32768` gives its values, the default those of tools that keep samples
    in [-1, 1]. A `high_frequency` of 0 or less counts down from half the sample rate. With `snip_edges` there are only
    frames that lie completely within the audio (one, completed with silence, if the audio is shorter than a window),
    otherwise one frame per step, with the audio mirrored at its ends.
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
        mels_MF = make_mel_matrix(self.mels, self._frame_size, self.sample_rate, self.low_frequency, high)
        self._mels_MF = mels_MF * np.float32(self.scale**2)  # of a power

    @property
    def size(self) -> int:
        return self.mels

    def _frame_count(self, samples: int) -> int:
        if self.snip_edges:
            return 1 + max(0, samples - len(self._window_W)) // self._step
        return max(1, (samples + self._step // 2) // self._step)

    def _pad_edges(self, samples_N: Floats, needed: int) -> Floats:
        if self.snip_edges:
            return np.pad(samples_N[:needed], (0, max(0, needed - len(samples_N))))
        before = len(self._window_W) // 2 - self._step // 2
        return reflect_pad(samples_N, before, needed - before - len(samples_N), repeat_edge=True)

    def _block_features(self, signal_N: Floats, count: int) -> Floats:
        mels_MK: Floats = self._mels_MF @ _power_spectrum(self._window_frames(signal_N, count)).T
        np.maximum(mels_MK, _FLOOR, out=mels_MK)
        return np.log(mels_MK, out=mels_MK).T

    def _window_frames(self, signal_N: Floats, count: int) -> Floats:
        """The frames as Kaldi prepares them: without offset, pre-emphasised, windowed, padded with zeros for the FFT.

        Kaldi applies pre-emphasis to each frame. Here it is applied once to the signal of the overlapping frames, which
        differs only in the first sample of a frame and in the offset, of which a share remains; both are corrected. The
        frames are as long as the FFT, and zeros of the window hide the rest, because rows without gaps are faster.
        """
        size, kept = len(self._window_W), np.float32(1 - self.preemphasis)
        frames_KW = frame_view(signal_N, count, size, self._step)
        offset_K1 = np.zeros((count, 1), dtype=np.float32)
        if self.remove_offset:  # einsum sums rows in a third of the time of `mean`
            offset_K1[:, 0] = np.einsum("kw->k", frames_KW) * (kept / np.float32(size))
        longer_KW = frame_view(pre_emphasis(signal_N, self.preemphasis), count, self._frame_size, self._step)
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
        self._cepstral_FM = make_cepstral_matrix(self.coefficients, self.mels, self.lifter)

    @property
    def size(self) -> int:
        return self.coefficients

    def _block_features(self, signal_N: Floats, count: int) -> Floats:
        cepstra_KF: Floats = (self._cepstral_FM @ super()._block_features(signal_N, count).T).T
        return cepstra_KF


@serializable
class LinearSpectrogram(FramedExtractor):
    """log(1 + magnitude) of a spectrogram, the features of Sonosco and DeepSpeech 2: 161 frequencies at 16 kHz.

    Frames are centred on multiples of the step, with the audio mirrored at its ends (`librosa.stft` up to version 0.9).
    """

    window_seconds: float = 0.020
    window: WindowShape = "hamming"

    @property
    def size(self) -> int:
        return len(self._window_W) // 2 + 1

    def _frame_count(self, samples: int) -> int:
        return 1 + samples // self._step

    def _pad_edges(self, samples_N: Floats, needed: int) -> Floats:
        before = len(self._window_W) // 2
        return reflect_pad(samples_N, before, needed - before - len(samples_N), repeat_edge=False)

    def _block_features(self, signal_N: Floats, count: int) -> Floats:
        frames_KW = frame_view(signal_N, count, self._frame_size, self._step)
        magnitude_KF = np.sqrt(_power_spectrum(frames_KW * self._window_W))
        return np.log1p(magnitude_KF, out=magnitude_KF)


WindowShape: TypeAlias = Literal["povey", "hann", "hamming", "blackman", "rectangular"]
WINDOW_SHAPES: tuple[str, ...] = get_args(WindowShape)


def make_window(shape: WindowShape, size: int) -> Floats:
    """The symmetric window of `size` samples of Kaldi and DeepSpeech, not the periodic window of most STFTs."""
    turn_W = 2 * np.pi * np.arange(size) / max(size - 1, 1)
    hann_W = 0.5 - 0.5 * np.cos(turn_W)
    shapes = {
        "povey": hann_W**0.85,
        "hann": hann_W,
        "hamming": 0.54 - 0.46 * np.cos(turn_W),
        "blackman": 0.42 - 0.5 * np.cos(turn_W) + 0.08 * np.cos(2 * turn_W),
        "rectangular": np.ones(size),
    }
    return shapes[shape].astype(np.float32)


def reflect_pad(samples_N: Floats, before: int, after: int, repeat_edge: bool) -> Floats:
    """The waveform with its ends mirrored outwards, several times if it is shorter than the padding.

    With `repeat_edge` the sample at the edge appears twice (`b a a b c`, Kaldi), else once (`c b a b c`, librosa).
    A negative `after` cuts the end instead.
    """
    size = len(samples_N)
    left_N = samples_N[_reflect_index(np.arange(-before, 0), size, repeat_edge)]
    right_N = samples_N[_reflect_index(np.arange(size, size + after), size, repeat_edge)]
    return np.concatenate([left_N, samples_N[: size + min(after, 0)], right_N])


def _reflect_index(index: NDArray[np.intp], size: int, repeat_edge: bool) -> NDArray[np.intp]:
    last = 2 * size - 1 if repeat_edge else max(2 * size - 2, 1)
    folded = index % (last + 1 if repeat_edge else last)
    return np.where(folded < size, folded, last - folded)


def frame_view(samples_N: Floats, count: int, size: int, step: int) -> Floats:
    """`count` overlapping frames as a read-only view of the waveform, which must hold all of them."""
    stride = samples_N.strides[0]
    return np.ndarray((count, size), samples_N.dtype, samples_N, strides=(step * stride, stride))


def pre_emphasis(samples_N: Floats, coefficient: float) -> Floats:
    """Each sample minus a share of the sample before it, to lift high frequencies; the first minus its own share."""
    result_N = np.empty_like(samples_N)
    np.multiply(samples_N[:-1], np.float32(-coefficient), out=result_N[1:])
    result_N[1:] += samples_N[1:]
    result_N[0] = samples_N[0] * np.float32(1 - coefficient)
    return result_N


def make_mel_matrix(bands: int, fft_size: int, sample_rate: int, low: float, high: float) -> scipy.sparse.csr_array:
    """Triangles of equal width on the mel scale, `matrix_MF`: 1 at a band's centre, 0 at its neighbours' centres.

    The matrix is sparse, because a frequency is in two bands at most: the product takes a seventh of the time, and
    SciPy sums in a fixed order, so that the bits depend neither on threads nor on the number of frames.
    """
    edges = np.linspace(_mel(low), _mel(high), bands + 2)
    frequency_F = _mel(np.arange(fft_size // 2 + 1) * (sample_rate / fft_size))
    low_M, centre_M, high_M = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising_MF = (frequency_F - low_M) / (centre_M - low_M)
    falling_MF = (high_M - frequency_F) / (high_M - centre_M)
    matrix_MF = np.maximum(0, np.minimum(rising_MF, falling_MF))
    matrix_MF[:, -1] = 0  # Kaldi leaves out the Nyquist frequency
    _refuse_empty_bands(matrix_MF, sample_rate, fft_size)
    return scipy.sparse.csr_array(matrix_MF.astype(np.float32))


def _mel(frequency: Floats | float) -> Floats:
    return np.asarray(1127.0 * np.log1p(np.asarray(frequency) / 700.0))


def _refuse_empty_bands(matrix_MF: Floats, sample_rate: int, fft_size: int) -> None:
    empty = np.flatnonzero(~matrix_MF.any(axis=1))
    if len(empty):
        raise UsageError(
            f"{len(empty)} of {len(matrix_MF)} mel bands are narrower than the {sample_rate / fft_size:.1f} Hz between "
            f"two frequencies of the spectrum and would always be empty. Use fewer mel bands or a longer window."
        )


def make_cepstral_matrix(coefficients: int, bands: int, lifter: float) -> scipy.sparse.csr_array:
    """The orthonormal cosine transform (type II) with Kaldi's liftering, `matrix_CM`; a lifter of 0 changes nothing."""
    order_C = np.arange(coefficients)[:, None]
    matrix_CM = np.sqrt(2 / bands) * np.cos(np.pi / bands * (np.arange(bands) + 0.5) * order_C)
    matrix_CM[0] = np.sqrt(1 / bands)
    if lifter:
        matrix_CM *= 1 + 0.5 * lifter * np.sin(np.pi * order_C / lifter)
    return scipy.sparse.csr_array(matrix_CM.astype(np.float32))

"""The building blocks of a spectrogram: frames, windows, mel bands and the cosine transform, as Kaldi defines them.

Shape suffixes: N samples, T frames, W samples of a frame, F frequencies, M mel bands, C cepstral coefficients.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from sonosco_like.errors import UsageError

Floats: TypeAlias = NDArray[np.floating[Any]]
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

"""The matrices behind mel and cepstral features, as Kaldi defines them.

Shape suffixes: F frequencies of a spectrum, M mel bands, C cepstral coefficients.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse

from sonosco_like.data.framing import Floats
from sonosco_like.errors import UsageError


def mel_matrix(bands: int, fft_size: int, sample_rate: int, low: float, high: float) -> scipy.sparse.csr_array:
    """Triangles of equal width on the mel scale, `matrix_MF`: 1 at a band's centre, 0 at its neighbours' centres.

    Sparse, because a frequency falls into two bands at most: the product costs a seventh of the dense one, and SciPy
    sums in a fixed order, so that its bits depend neither on threads nor on how many frames are multiplied at once.
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
            f"two frequencies of the spectrum and would always be empty. Take fewer mel bands or a longer window."
        )


def cepstral_matrix(coefficients: int, bands: int, lifter: float) -> scipy.sparse.csr_array:
    """The orthonormal cosine transform (type II) with Kaldi's liftering, `matrix_CM`; a lifter of 0 leaves it plain."""
    order_C = np.arange(coefficients)[:, None]
    matrix_CM = np.sqrt(2 / bands) * np.cos(np.pi / bands * (np.arange(bands) + 0.5) * order_C)
    matrix_CM[0] = np.sqrt(1 / bands)
    if lifter:
        matrix_CM *= 1 + 0.5 * lifter * np.sin(np.pi * order_C / lifter)
    return scipy.sparse.csr_array(matrix_CM.astype(np.float32))

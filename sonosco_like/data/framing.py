"""A waveform as overlapping frames: edges, views without copies, and window shapes.

Shape suffixes: N samples, T frames, W samples of a frame.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]
WindowShape: TypeAlias = Literal["povey", "hann", "hamming", "blackman", "rectangular"]
WINDOW_SHAPES: tuple[str, ...] = get_args(WindowShape)


def window_values(shape: WindowShape, size: int) -> Floats:
    """The symmetric window of `size` samples that Kaldi and DeepSpeech use, not the periodic one of most STFTs."""
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


def mirrored(samples_N: Floats, before: int, after: int, repeat_edge: bool) -> Floats:
    """The waveform with its ends mirrored outwards, again and again if it is shorter than what is asked for.

    With `repeat_edge` the sample at the edge appears twice (`b a a b c`, Kaldi), else once (`c b a b c`, librosa).
    A negative `after` cuts the end instead.
    """
    size = len(samples_N)
    left_N = samples_N[_reflected(np.arange(-before, 0), size, repeat_edge)]
    right_N = samples_N[_reflected(np.arange(size, size + after), size, repeat_edge)]
    return np.concatenate([left_N, samples_N[: size + min(after, 0)], right_N])


def _reflected(index: NDArray[np.intp], size: int, repeat_edge: bool) -> NDArray[np.intp]:
    last = 2 * size - 1 if repeat_edge else max(2 * size - 2, 1)
    folded = index % (last + 1 if repeat_edge else last)
    return np.where(folded < size, folded, last - folded)


def frame_view(samples_N: Floats, count: int, size: int, step: int) -> Floats:
    """`count` overlapping frames as a view of the waveform, which must hold all of them; not to be written to."""
    stride = samples_N.strides[0]
    return np.ndarray((count, size), samples_N.dtype, samples_N, strides=(step * stride, stride))


def emphasised(samples_N: Floats, coefficient: float) -> Floats:
    """Each sample less a share of the one before it, which lifts high frequencies; the first one less its own share."""
    result_N = np.empty_like(samples_N)
    np.multiply(samples_N[:-1], np.float32(-coefficient), out=result_N[1:])
    result_N[1:] += samples_N[1:]
    result_N[0] = samples_N[0] * np.float32(1 - coefficient)
    return result_N

"""What makes features of waveforms, and the way from a waveform through blocks of frames to a matrix.

Everything is NumPy and SciPy in blocks of frames that depend on the utterance alone, each computed by one thread. So
the bits of an utterance's features depend neither on its neighbours in a batch, nor on the number of threads or
workers, and an hour of audio needs little more memory than its features.

Shape suffixes: N samples, T frames, K frames of a block, W samples of a frame, F features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from sonosco_like.data.framing import WINDOW_SHAPES, Floats, WindowShape, window_values
from sonosco_like.errors import DataError, UsageError
from sonosco_like.serialization import serializable

_BLOCK = 256  # frames; their spectra stay in the processor's cache
_Block: TypeAlias = tuple[Floats, Floats]  # a signal, and the features to be made of it


@serializable
class FeatureExtractor(ABC):
    """Makes one matrix of features (time, feature) of each waveform.

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
        """How many frames a waveform of this length gives."""

    @abstractmethod
    def __call__(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        """One float32 matrix `features_TF` for each waveform `samples_N` at `sample_rate`, samples in [-1, 1]."""


@serializable
class FramedExtractor(FeatureExtractor):
    """Features of overlapping frames, each by itself."""

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
        self._step = _whole(self.step_seconds * self.sample_rate)
        if not self._step:
            raise UsageError(f"A step of {self.step_seconds} s is less than one sample at {self.sample_rate} Hz.")
        self._window_W = window_values(self.window, _whole(self.window_seconds * self.sample_rate))
        self._frame_size = len(self._window_W)  # samples that are cut for a frame

    @property
    def frame_shift(self) -> float:
        """Seconds from one frame to the next."""
        return self._step / self.sample_rate

    def frames(self, seconds: float) -> int:
        """How many frames a waveform of this length gives."""
        return self._count(round(seconds * self.sample_rate))

    def __call__(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        """One float32 matrix `features_TF` for each waveform `samples_N` at `sample_rate`, samples in [-1, 1]."""
        features, blocks = [], []
        for waveform_N in waveforms:
            features_TF, own_blocks = self._plan(_samples(waveform_N))
            features.append(torch.from_numpy(features_TF))
            blocks += own_blocks
        _for_each(blocks, self._fill)
        return features

    def _plan(self, samples_N: Floats) -> tuple[Floats, list[_Block]]:
        """The matrix to be filled, and the parts of it, each with the signal from its first frame on."""
        count = self._count(len(samples_N))
        signal_N = self._completed(samples_N, (count - 1) * self._step + self._frame_size)
        features_TF = np.empty((count, self.size), dtype=np.float32)
        starts = range(0, count, _BLOCK)
        return features_TF, [(signal_N[start * self._step :], features_TF[start : start + _BLOCK]) for start in starts]

    def _fill(self, block: _Block) -> None:
        signal_N, features_KF = block
        needed = (len(features_KF) - 1) * self._step + self._frame_size
        features_KF[...] = self._block(signal_N[:needed], len(features_KF))

    @abstractmethod
    def _count(self, samples: int) -> int:
        """Frames of so many samples; at least one."""

    @abstractmethod
    def _completed(self, samples_N: Floats, needed: int) -> Floats:
        """The `needed` samples from the start of the first frame to the end of the last, edges filled in."""

    @abstractmethod
    def _block(self, signal_N: Floats, count: int) -> Floats:
        """The features of a few frames, which the signal holds exactly."""


def _for_each(blocks: list[_Block], work: Callable[[_Block], None]) -> None:
    """Do the work on every block, on as many threads as torch may use; a thread has a block to itself."""
    threads = min(torch.get_num_threads(), len(blocks) // 2)
    if threads < 2:
        for block in blocks:
            work(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, blocks):
            pass


def _whole(samples: float) -> int:
    """As many whole samples as fit, forgiving the last digits of a product of decimals."""
    return int(round(samples, 6))


def _samples(waveform_N: Tensor) -> Floats:
    if waveform_N.ndim != 1 or not waveform_N.numel():
        raise DataError(
            f"Features are made of a waveform of one channel with at least one sample, "
            f"got a tensor of shape {tuple(waveform_N.shape)}."
        )
    return waveform_N.detach().to("cpu", torch.float32).numpy()

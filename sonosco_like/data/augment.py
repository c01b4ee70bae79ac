"""The base classes of all augmentations, their random generators, and SpecAugment.

An augmentation is a pure function of its input and a generator. Each (seed, epoch, utterance) has its own generator,
and all augmentations of the utterance draw from it one after the other. So neither the number of workers nor the place
where a run was stopped changes anything. Augmentations compute with NumPy on one thread for the same reason.

Shape suffixes: N samples, T frames, F features.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sonosco_like.data.spectrum import Floats
from sonosco_like.errors import UsageError
from sonosco_like.serialization import serializable


def utterance_random(seed: int, epoch: int, utterance_id: str) -> np.random.Generator:
    """The generator of one utterance in one epoch; the same in every process and on every machine."""
    name = f"{seed}/{epoch}/{utterance_id}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(name, digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


@serializable
class Augmentation(ABC):
    """A change to an utterance with a probability; the decision is always the first number drawn."""

    probability: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise UsageError(f"`probability` must be from 0 to 1, got {self.probability}.")

    def _happens(self, random: np.random.Generator) -> bool:
        return random.random() < self.probability


@serializable
class WaveformAugmentation(Augmentation):
    """A change to the samples of an utterance, which may change their number."""

    def __call__(self, samples_N: Tensor, sample_rate: int, random: np.random.Generator) -> Tensor:
        """The changed samples in a new tensor, or the input itself if nothing is changed."""
        if not self._happens(random) or not samples_N.numel():
            return samples_N
        return torch.from_numpy(self.apply(_array(samples_N), sample_rate, random))

    @abstractmethod
    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        """The changed copy of at least one float32 sample; the input stays as it is."""


@serializable
class FeatureAugmentation(Augmentation):
    """A change to the features of an utterance, which keeps their shape."""

    def __call__(self, features_TF: Tensor, random: np.random.Generator) -> Tensor:
        """The changed features in a new tensor, or the input itself if nothing is changed."""
        if not self._happens(random) or not features_TF.numel():
            return features_TF
        return torch.from_numpy(self.apply(_array(features_TF), random))

    @abstractmethod
    def apply(self, features_TF: Floats, random: np.random.Generator) -> Floats:
        """The changed copy of float32 features of at least one frame; the input stays as it is."""


def _array(tensor: Tensor) -> Floats:
    return tensor.detach().to("cpu", torch.float32).numpy()


def check_range(name: str, limits: tuple[float, float], above: float = -np.inf) -> None:
    """Refuse a range whose ends are swapped, or not above the limit."""
    low, high = limits
    if not above < low <= high < np.inf:
        beyond = "" if above == -np.inf else f" greater than {above:g}"
        raise UsageError(f"`{name}` must be two numbers{beyond}, the smaller one first; got {low} and {high}.")


@serializable
class SpecAugment(FeatureAugmentation):
    """Masks of frequency bands and times, and optional time warping (Park et al. 2019, 1904.08779).

    Each mask has a drawn width from 0 up to its maximum. A time mask hides at most `time_share` of the utterance, even
    if `time_width` allows more. `time_warp` moves a drawn frame by up to that many frames and stretches both sides.
    `fill: zero` is right for normalized features, `mean` (of the utterance) for all others.
    """

    frequency_masks: int = 2
    frequency_width: int = 27
    time_masks: int = 2
    time_width: int = 100
    time_share: float = 0.2
    time_warp: int = 0
    fill: Literal["zero", "mean"] = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = (self.frequency_masks, self.frequency_width, self.time_masks, self.time_width, self.time_warp)
        if min(counts) < 0 or not 0 <= self.time_share <= 1:
            raise UsageError(
                f"Numbers and widths of masks must not be negative, and `time_share` must be from 0 to 1; "
                f"got {', '.join(map(str, counts))} and {self.time_share}."
            )
        if self.fill not in ("zero", "mean"):
            raise UsageError(f"`fill` must be zero or mean, got {self.fill!r}.")

    def apply(self, features_TF: Floats, random: np.random.Generator) -> Floats:
        fill = np.float32(0.0 if self.fill == "zero" else features_TF.mean())
        result_TF = time_warp(features_TF, self.time_warp, random) if self.time_warp else features_TF.copy()
        frames, size = result_TF.shape
        for _ in range(self.frequency_masks):
            result_TF[:, _draw_mask(size, self.frequency_width, random)] = fill
        for _ in range(self.time_masks):
            result_TF[_draw_mask(frames, min(self.time_width, int(self.time_share * frames)), random)] = fill
        return result_TF


def _draw_mask(size: int, widest: int, random: np.random.Generator) -> slice:
    width = int(random.integers(min(widest, size) + 1))
    start = int(random.integers(size - width + 1))
    return slice(start, start + width)


def time_warp(features_TF: Floats, widest: int, random: np.random.Generator) -> Floats:
    """Features with a drawn frame moved by up to `widest` frames, and both sides stretched; the ends stay in place."""
    last = len(features_TF) - 1
    widest = min(widest, (last - 2) // 2)
    if widest < 1:
        return features_TF.copy()
    source = int(random.integers(widest + 1, last - widest))
    target = source + int(random.integers(-widest, widest + 1))
    place_T = np.interp(np.arange(last + 1), [0, target, last], [0, source, last])
    before_T = np.minimum(place_T.astype(np.int64), last - 1)
    share_T1 = (place_T - before_T)[:, None].astype(np.float32)
    result_TF: Floats = features_TF[before_T] * (1 - share_T1) + features_TF[before_T + 1] * share_T1
    return result_TF

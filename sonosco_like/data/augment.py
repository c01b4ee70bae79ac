"""What every augmentation shares: a coin, and randomness that belongs to the utterance.

An augmentation is a pure function of its input and a generator. The generator is that of (seed, epoch, utterance), and
all augmentations of an utterance draw from it one after the other. So neither the number of workers nor the place
where a run was stopped changes anything. They compute with NumPy on one thread for the same reason.

Shape suffixes: N samples, T frames, F features.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from sonosco_like.data.framing import Floats
from sonosco_like.errors import UsageError
from sonosco_like.serialization import serializable


def utterance_random(seed: int, epoch: int, utterance_id: str) -> np.random.Generator:
    """The generator of one utterance in one epoch; the same in every process and on every machine."""
    name = f"{seed}/{epoch}/{utterance_id}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(name, digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


@serializable
class Augmentation(ABC):
    """Something done to an utterance with a probability; the coin is the first thing drawn, whatever comes of it."""

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
        """The changed samples in a new tensor, or the input itself if nothing happened."""
        if not self._happens(random) or not samples_N.numel():
            return samples_N
        return torch.from_numpy(self.apply(_array(samples_N), sample_rate, random))

    @abstractmethod
    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        """The change itself, on float32 samples, of which there is at least one; leaves its input alone."""


@serializable
class FeatureAugmentation(Augmentation):
    """A change to the features of an utterance, which keeps their shape."""

    def __call__(self, features_TF: Tensor, random: np.random.Generator) -> Tensor:
        """The changed features in a new tensor, or the input itself if nothing happened."""
        if not self._happens(random) or not features_TF.numel():
            return features_TF
        return torch.from_numpy(self.apply(_array(features_TF), random))

    @abstractmethod
    def apply(self, features_TF: Floats, random: np.random.Generator) -> Floats:
        """The change itself, on float32 features, of which there is at least one; leaves its input alone."""


def _array(tensor: Tensor) -> Floats:
    return tensor.detach().to("cpu", torch.float32).numpy()


def check_range(name: str, limits: tuple[float, float], above: float = -np.inf) -> None:
    """Refuse a range whose ends are swapped, or not above what makes sense."""
    low, high = limits
    if not above < low <= high < np.inf:
        beyond = "" if above == -np.inf else f" greater than {above:g}"
        raise UsageError(f"`{name}` must be two numbers{beyond}, the smaller one first; got {low} and {high}.")

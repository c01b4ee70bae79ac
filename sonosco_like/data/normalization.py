"""Normalization of features to mean 0 and variance 1, per utterance or with statistics of the whole training set.

NumPy in double precision on one thread, so that the bits are the same in a loader worker and in the main process.
Shape suffixes: T frames, F features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from sonosco_like.data.audio import Floats
from sonosco_like.errors import DataError, UsageError
from sonosco_like.serialization import serializable, state

_SMALLEST_DEVIATION = 1e-5  # below it a feature is constant except for rounding, which a division would only magnify


@serializable
class Normalization(ABC):
    """Shifts (`mean`) and scales (`variance`) features."""

    mean: bool = True
    variance: bool = True

    @abstractmethod
    def __call__(self, features_TF: Tensor) -> Tensor:
        """The normalised features, in a new tensor."""

    def _apply(self, features_TF: Floats, mean_F: Floats, variance_F: Floats) -> Tensor:
        result_TF = features_TF - mean_F if self.mean else features_TF.astype(np.float64)
        if self.variance:
            result_TF /= np.maximum(np.sqrt(variance_F), _SMALLEST_DEVIATION)
        return torch.from_numpy(result_TF.astype(np.float32))


@serializable
class UtteranceNormalization(Normalization):
    """Normalizes each utterance by its own statistics: nothing to fit, and independent of level and channel.

    `per_feature: false` takes one mean and variance of the whole matrix, as DeepSpeech does.
    A constant feature becomes 0.
    """

    per_feature: bool = True

    def __call__(self, features_TF: Tensor) -> Tensor:
        features = _matrix(features_TF)
        axis = 0 if self.per_feature else None
        mean_F = features.mean(axis=axis, dtype=np.float64)
        variance_F = np.square(features - mean_F).mean(axis=axis) if self.variance else np.ones(1)
        return self._apply(features, np.asarray(mean_F), np.asarray(variance_F))


@serializable
class GlobalNormalization(Normalization):
    """Normalizes each feature by its mean and variance over the training set, which `fit` gathers once."""

    frames: int = state(0)
    mean_F: Tensor = state(factory=lambda: torch.zeros(0, dtype=torch.float64))
    variance_F: Tensor = state(factory=lambda: torch.zeros(0, dtype=torch.float64))

    def fit(self, utterances: Iterable[Tensor]) -> None:
        """Gather the statistics of all frames of these features, and replace earlier ones.

        Utterances are merged by the formula of Chan, Golub and LeVeque (1983) in double precision: no sum of squares
        grows large, and no utterance is kept in memory.
        """
        frames, mean_F, squares_F = 0, np.zeros(0), np.zeros(0)
        for features_TF in utterances:
            features = _matrix(features_TF)
            if not frames:
                mean_F, squares_F = np.zeros(features.shape[1]), np.zeros(features.shape[1])
            self._refuse_other_size(features.shape[1], len(mean_F))
            part_F = features.mean(axis=0, dtype=np.float64)
            difference_F = part_F - mean_F
            share = len(features) / (frames + len(features))
            mean_F = mean_F + difference_F * share
            squares_F = squares_F + np.square(features - part_F).sum(axis=0) + difference_F**2 * (frames * share)
            frames += len(features)
        if not frames:
            raise UsageError("GlobalNormalization.fit needs the features of at least one utterance, got none.")
        self.frames, self.mean_F = frames, torch.from_numpy(mean_F)
        self.variance_F = torch.from_numpy(squares_F / frames)

    def __call__(self, features_TF: Tensor) -> Tensor:
        if not self.frames:
            raise UsageError(
                "GlobalNormalization has no statistics yet. Call its `fit` with the features of the training set first."
            )
        features = _matrix(features_TF)
        self._refuse_other_size(features.shape[1], len(self.mean_F))
        return self._apply(features, self.mean_F.numpy(), self.variance_F.numpy())

    @staticmethod
    def _refuse_other_size(size: int, expected: int) -> None:
        if size != expected:
            raise UsageError(f"GlobalNormalization has statistics of {expected} features, got an utterance of {size}.")


def _matrix(features_TF: Tensor) -> Floats:
    if features_TF.ndim != 2 or not features_TF.numel():
        raise DataError(f"Features must be a filled matrix (time, feature), got shape {tuple(features_TF.shape)}.")
    return features_TF.detach().to("cpu", torch.float32).numpy()

"""SpecAugment: parts of the spectrum hidden, so that a model learns not to rely on any of them.

Shape suffixes: T frames, F features.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from sonosco_like.data.augment import FeatureAugmentation
from sonosco_like.data.framing import Floats
from sonosco_like.errors import UsageError
from sonosco_like.serialization import serializable


@serializable
class SpecAugment(FeatureAugmentation):
    """Bands of frequency and stretches of time blanked out, and time optionally bent (Park et al. 2019, 1904.08779).

    Each mask has a drawn width from 0 up to its maximum. A time mask hides at most `time_share` of the utterance,
    whatever `time_width` allows. `time_warp` moves a drawn frame by up to that many frames and stretches both sides to
    fit. `fill: zero` is right for normalised features, `mean` (of the utterance) for any others.
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
        """The features, bent and masked."""
        fill = np.float32(0.0 if self.fill == "zero" else features_TF.mean())
        result_TF = warped(features_TF, self.time_warp, random) if self.time_warp else features_TF.copy()
        frames, size = result_TF.shape
        for _ in range(self.frequency_masks):
            result_TF[:, _drawn_mask(size, self.frequency_width, random)] = fill
        for _ in range(self.time_masks):
            result_TF[_drawn_mask(frames, min(self.time_width, int(self.time_share * frames)), random)] = fill
        return result_TF


def _drawn_mask(size: int, widest: int, random: np.random.Generator) -> slice:
    width = int(random.integers(min(widest, size) + 1))
    start = int(random.integers(size - width + 1))
    return slice(start, start + width)


def warped(features_TF: Floats, widest: int, random: np.random.Generator) -> Floats:
    """Time bent so that a drawn frame comes up to `widest` frames earlier or later; both ends stay where they are."""
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

"""One part of a manifest that serves for several: training and validation data of one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from sonosco_like.data.tools.split import By, parts_of
from sonosco_like.errors import UsageError
from sonosco_like.records import Utterance
from sonosco_like.serialization import serializable


@serializable
class ManifestPart:
    """The utterances of a manifest that one dataset keeps, where others keep the rest.

    Datasets that differ in `keep`, and agree in the manifest, `shares`, `by` and `seed`, have no speaker and/or no text
    in common, as `by` says. Every part has about its share of the seconds.
    """

    keep: str
    shares: dict[str, float] = field(default_factory=lambda: {"train": 0.9, "val": 0.1})
    by: By = "speaker"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.shares.get(self.keep, 0.0) > 0:
            raise UsageError(f"`keep` must be a part with a share: {', '.join(self.shares)}; got {self.keep!r}.")

    def rows_of(self, utterances: Sequence[Utterance]) -> NDArray[np.int64]:
        """The indices of the utterances that belong to this part."""
        parts = parts_of(utterances, self.by, self.shares, self.seed)
        return np.flatnonzero(np.array([part == self.keep for part in parts], dtype=bool))

"""Utterances of different lengths as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sonosco_like.records import BLANK, Batch


@dataclass(frozen=True, slots=True)
class Example:
    """One utterance on its way into a batch."""

    id: str
    text: str
    duration: float
    features_TF: Tensor
    labels: list[int]


def collate(examples: Sequence[Example]) -> Batch:
    """Pad features with zeros and labels with BLANK to the longest of the batch."""
    feature_lengths = [len(example.features_TF) for example in examples]
    label_lengths = [len(example.labels) for example in examples]
    size = examples[0].features_TF.shape[1]
    features_BTF = torch.zeros(len(examples), max(feature_lengths), size)
    labels_BU = torch.full((len(examples), max(label_lengths)), BLANK, dtype=torch.int64)
    for row, example in enumerate(examples):
        features_BTF[row, : feature_lengths[row]] = example.features_TF
        labels_BU[row, : label_lengths[row]] = torch.tensor(example.labels, dtype=torch.int64)
    return Batch(
        features_BTF=features_BTF,
        feature_lengths_B=torch.tensor(feature_lengths),
        labels_BU=labels_BU,
        label_lengths_B=torch.tensor(label_lengths),
        ids=[example.id for example in examples],
        texts=[example.text for example in examples],
        durations=[example.duration for example in examples],
    )

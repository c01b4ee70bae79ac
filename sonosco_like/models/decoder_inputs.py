"""The labels that an attention decoder reads in training; some are replaced, so that it learns to recover from errors.

Shape suffixes as in `records`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sonosco_like.errors import UsageError
from sonosco_like.records import SPECIAL_SYMBOLS, START
from sonosco_like.tensors import length_mask


def check_share(name: str, share: float) -> None:
    """Refuse a share of labels that is not between 0 and 1."""
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"`{name}` is the share of labels to replace, between 0 and 1, got {share}.")


def prepend_start(labels_BU: Tensor) -> Tensor:
    """START, then the labels: what a decoder reads while it predicts the labels, then END."""
    start_B1 = labels_BU.new_full((labels_BU.shape[0], 1), START)
    return torch.cat([start_B1, labels_BU], dim=1)


def positions_to_replace(lengths_B: Tensor, size: int, share: float) -> Tensor:
    """Choose `share` of all labels of a batch: mask_BU, uniformly drawn from the first `lengths_B` of `size` positions.

    Of n labels, floor(share * n) or one more are chosen, such that their expected number is exactly share * n.
    """
    real_BU = length_mask(lengths_B, size)
    draw_BU = torch.rand(real_BU.shape, device=lengths_B.device).masked_fill(~real_BU, 2.0)
    wanted = torch.floor(share * lengths_B.sum() + torch.rand((), device=lengths_B.device))
    rank_BU = draw_BU.flatten().argsort().argsort().view(real_BU.shape)
    return (rank_BU < wanted) & real_BU


def replace_at_random(labels_BU: Tensor, lengths_B: Tensor, share: float, vocabulary_size: int) -> Tensor:
    """The labels with `share` of them replaced by random ordinary symbols (random sampling, Hannun et al. 2019)."""
    if share == 0.0 or labels_BU.shape[1] == 0:
        return labels_BU
    chosen_BU = positions_to_replace(lengths_B, labels_BU.shape[1], share)
    return torch.where(chosen_BU, torch.randint_like(labels_BU, len(SPECIAL_SYMBOLS), vocabulary_size), labels_BU)

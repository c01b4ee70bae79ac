"""Lengths and padding: an utterance has the same output alone and in a batch.

Shape suffixes: B utterances of a batch, T frames, D values per frame.
"""

from __future__ import annotations

import torch
from torch import Tensor


def length_mask(lengths_B: Tensor, size: int) -> Tensor:
    """Boolean mask_BT, true on the first `lengths_B` of `size` positions."""
    return torch.arange(size, device=lengths_B.device) < lengths_B[:, None]


def zero_padding(frames_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """The frames with everything beyond each length set to zero, whatever was there."""
    padding_BT = ~length_mask(lengths_B, frames_BTD.shape[1])
    return frames_BTD.masked_fill(padding_BT[:, :, None], 0.0)


def reduced_lengths(lengths_B: Tensor, factor: int) -> Tensor:
    """How many frames remain when every `factor` neighbours become one; a last incomplete group counts."""
    return torch.div(lengths_B + (factor - 1), factor, rounding_mode="floor")


def reverse_by_length(frames_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """Each utterance back to front, with its padding still behind it. Its own inverse on the real frames."""
    positions_T = torch.arange(frames_BTD.shape[1], device=frames_BTD.device)
    source_BT = (lengths_B[:, None] - 1 - positions_T).clamp(min=0)
    return frames_BTD.gather(1, source_BT[:, :, None].expand(-1, -1, frames_BTD.shape[2]))


def stack_neighbours(frames_BTD: Tensor, lengths_B: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """Concatenate every `factor` neighbouring frames into one; what lies beyond the end must be zero."""
    batch, frames, size = frames_BTD.shape
    padded_BTD = torch.nn.functional.pad(frames_BTD, (0, 0, 0, -frames % factor))
    return padded_BTD.reshape(batch, -1, size * factor), reduced_lengths(lengths_B, factor)

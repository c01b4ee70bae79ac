"""What an attention decoder looks at: the encoded frames of each row, prepared once for all steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sonosco_like.models.masking import length_mask


@dataclass(frozen=True, slots=True)
class Memory:
    """Keys to be found by, values to be read, for each row of a search.

    ```
    keys_NHSA    per attention head
    values_NHSE
    mask_NS      true on real frames
    utterance_N  which utterance each row belongs to
    ```
    """

    keys_NHSA: Tensor
    values_NHSE: Tensor
    mask_NS: Tensor
    utterance_N: Tensor

    @classmethod
    def of(cls, keys_BHSA: Tensor, values_BHSE: Tensor, lengths_B: Tensor) -> Memory:
        """One row per utterance."""
        batch, _, frames, _ = keys_BHSA.shape
        rows_B = torch.arange(batch, device=keys_BHSA.device)
        return cls(keys_BHSA, values_BHSE, length_mask(lengths_B, frames), rows_B)

    def select(self, index_N: Tensor) -> Memory:
        """The rows of `index_N`; beams that change places within an utterance cost nothing: their frames are equal."""
        utterance_N = self.utterance_N[index_N]
        if torch.equal(utterance_N, self.utterance_N):
            return self
        return Memory(self.keys_NHSA[index_N], self.values_NHSE[index_N], self.mask_NS[index_N], utterance_N)

    def masked_softmax(self, scores_NHxS: Tensor) -> Tensor:
        """Weights over real frames; scores are (N, H, S) or (N, H, U, S)."""
        mask = self.mask_NS[:, None, None] if scores_NHxS.dim() == 4 else self.mask_NS[:, None]
        return scores_NHxS.float().masked_fill(~mask, float("-inf")).softmax(-1)


def split_heads(frames_BSD: Tensor, heads: int) -> Tensor:
    """frames_BHSA: each head's share of each frame."""
    batch, frames, size = frames_BSD.shape
    return frames_BSD.view(batch, frames, heads, size // heads).transpose(1, 2)

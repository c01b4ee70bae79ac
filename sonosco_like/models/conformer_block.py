"""The block of the Conformer (Gulati et al. 2020, arXiv 2005.08100).

Own blocks rather than `torchaudio.models.Conformer`: that one knows no positions, and its convolutions read the padding
of an utterance, so that its output depends on what the utterance is batched with (`docs/models.md` has the numbers).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sonosco_like.models.masking import length_mask, zero_padding
from sonosco_like.models.memory import split_heads
from sonosco_like.models.normalization import MaskedBatchNorm


def relative_positions(frames: int, size: int, like: Tensor) -> Tensor:
    """Sinusoids_PD for the distances frames - 1, ..., 0, ..., -(frames - 1) (Vaswani et al. 2017; Dai et al. 2019)."""
    distance_P1 = torch.arange(frames - 1, -frames, -1, device=like.device, dtype=torch.float32)[:, None]
    pace = torch.exp(torch.arange(0, size, 2, device=like.device) * (-math.log(10_000.0) / size))
    return torch.stack([torch.sin(distance_P1 * pace), torch.cos(distance_P1 * pace)], dim=2).flatten(1).to(like.dtype)


def shift_relative(scores_BHTP: Tensor) -> Tensor:
    """From scores by distance (column p means distance T - 1 - p) to scores_BHTS by position.

    Row t wants T columns from column T - 1 - t on. With one more column in front, reading the same numbers as rows of T
    columns moves each row by one against the row above it.
    """
    batch, heads, frames, distances = scores_BHTP.shape
    padded_BHTP = nn.functional.pad(scores_BHTP, (1, 0)).view(batch, heads, distances + 1, frames)
    return padded_BHTP[:, :, 1:].view(batch, heads, frames, distances)[..., :frames]


class RelativeAttention(nn.Module):
    """Multi-head self-attention that knows how far apart two frames are, not where they are (Dai et al. 2019).

    It begins almost silent: at full strength the untrained attention adds the same mean of the whole utterance to every
    frame, in which CTC cannot find an alignment on small data (`docs/models.md` has the numbers).
    """

    def __init__(self, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.size, self.heads = size, heads
        self.query_key_value = nn.Linear(size, 3 * size)
        self.position = nn.Linear(size, size, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(heads, 1, size // heads))
        self.position_bias = nn.Parameter(torch.zeros(heads, 1, size // heads))
        self.output = nn.Linear(size, size)
        nn.init.xavier_uniform_(self.output.weight, gain=0.01)
        self.drop = nn.Dropout(dropout)

    def forward(self, frames_BSD: Tensor, positions_PD: Tensor, mask_BS: Tensor) -> Tensor:
        """Each real frame's view of all real frames."""
        query, key, value = (split_heads(part, self.heads) for part in self.query_key_value(frames_BSD).chunk(3, dim=2))
        position_HPA = split_heads(self.position(positions_PD)[None], self.heads)[0]
        near_BHSS = shift_relative((query + self.position_bias) @ position_HPA.transpose(1, 2))
        scores_BHSS = ((query + self.content_bias) @ key.transpose(2, 3) + near_BHSS) * query.shape[3] ** -0.5
        weights_BHSS = scores_BHSS.float().masked_fill(~mask_BS[:, None, None], float("-inf")).softmax(-1)
        seen_BHSA = self.drop(weights_BHSS).to(value.dtype) @ value
        return self.output(seen_BHSA.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class ConvolutionModule(nn.Module):
    """Pointwise convolution with a gate, depthwise convolution over time, batch normalisation, Swish, pointwise."""

    def __init__(self, size: int, kernel: int) -> None:
        super().__init__()
        self.widen = nn.Linear(size, 2 * size)
        self.depthwise = nn.Conv1d(size, size, kernel, padding=kernel // 2, groups=size, bias=False)
        self.norm = MaskedBatchNorm(size)
        self.output = nn.Linear(size, size)

    def forward(self, frames_BSD: Tensor, lengths_B: Tensor) -> Tensor:
        """What each frame hears of its neighbours; padding counts as silence."""
        gated_BSD = zero_padding(nn.functional.glu(self.widen(frames_BSD)), lengths_B)
        heard_BDS = self.depthwise(gated_BSD.transpose(1, 2))
        normed_BDS = self.norm(heard_BDS[..., None], lengths_B)[..., 0]
        return self.output(nn.functional.silu(normed_BDS).transpose(1, 2))  # type: ignore[no-any-return]


def _feed_forward(size: int, inner: int, dropout: float) -> nn.Sequential:
    layers = [nn.LayerNorm(size), nn.Linear(size, inner), nn.SiLU(), nn.Dropout(dropout), nn.Linear(inner, size)]
    return nn.Sequential(*layers, nn.Dropout(dropout))


class ConformerBlock(nn.Module):
    """x + FF/2, + attention, + convolution, + FF/2, layer norm; each part normalises its own input."""

    def __init__(self, size: int, heads: int, kernel: int, expansion: int, dropout: float) -> None:
        super().__init__()
        self.first = _feed_forward(size, expansion * size, dropout)
        self.attention_norm = nn.LayerNorm(size)
        self.attention = RelativeAttention(size, heads, dropout)
        self.convolution_norm = nn.LayerNorm(size)
        self.convolution = ConvolutionModule(size, kernel)
        self.second = _feed_forward(size, expansion * size, dropout)
        self.norm = nn.LayerNorm(size)
        self.drop = nn.Dropout(dropout)

    def forward(self, frames_BSD: Tensor, lengths_B: Tensor, positions_PD: Tensor) -> Tensor:
        """The frames after the block; padding arbitrary."""
        mask_BS = length_mask(lengths_B, frames_BSD.shape[1])
        frames_BSD = frames_BSD + 0.5 * self.first(frames_BSD)
        frames_BSD = frames_BSD + self.drop(self.attention(self.attention_norm(frames_BSD), positions_PD, mask_BS))
        frames_BSD = frames_BSD + self.drop(self.convolution(self.convolution_norm(frames_BSD), lengths_B))
        return self.norm(frames_BSD + 0.5 * self.second(frames_BSD))  # type: ignore[no-any-return]

"""Conformer (Gulati et al. 2020, arXiv 2005.08100) under CTC, an attention decoder, or both.

The blocks are our own: those of `torchaudio.models.Conformer` have no positions, and their convolutions read the
padding of an utterance, so that the output depends on the other utterances of the batch (numbers in `docs/models.md`).

Shape suffixes as in `records`; here also A size of a head, P distances between two frames, C channels.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Literal

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.models.attention import split_heads
from sonosco_like.models.layers import MaskedBatchNorm
from sonosco_like.models.recogniser import Encoder, Recogniser
from sonosco_like.serialization import serializable
from sonosco_like.tensors import length_mask, reduced_lengths, zero_padding

_REDUCTION = 4


def relative_positions(frames: int, size: int, like: Tensor) -> Tensor:
    """Sinusoids_PD for the distances frames - 1, ..., 0, ..., -(frames - 1) (Vaswani et al. 2017; Dai et al. 2019)."""
    distance_P1 = torch.arange(frames - 1, -frames, -1, device=like.device, dtype=torch.float32)[:, None]
    frequency_D = torch.exp(torch.arange(0, size, 2, device=like.device) * (-math.log(10_000.0) / size))
    angle_PD = distance_P1 * frequency_D
    return torch.stack([torch.sin(angle_PD), torch.cos(angle_PD)], dim=2).flatten(1).to(like.dtype)


def shift_relative(scores_BHTP: Tensor) -> Tensor:
    """Turn scores by distance (column p means distance T - 1 - p) into scores_BHTS by position.

    Row t needs the T columns that begin at column T - 1 - t. With one more column in front, the same numbers read as
    rows of T columns are shifted by one from row to row.
    """
    batch, heads, frames, distances = scores_BHTP.shape
    padded_BHTP = nn.functional.pad(scores_BHTP, (1, 0)).view(batch, heads, distances + 1, frames)
    return padded_BHTP[:, :, 1:].view(batch, heads, frames, distances)[..., :frames]


class RelativeAttention(nn.Module):
    """Multi-head self-attention that uses the distance of two frames, not their positions (Dai et al. 2019).

    Its output is almost zero at first: at full strength the untrained attention adds the same mean of the whole
    utterance to every frame, and on small data CTC then finds no alignment (`docs/models.md` has the numbers).
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
        """What each real frame reads from all real frames of its utterance."""
        projected = self.query_key_value(frames_BSD).chunk(3, dim=2)
        query_BHSA, key_BHSA, value_BHSA = (split_heads(part_BSD, self.heads) for part_BSD in projected)
        position_HPA = split_heads(self.position(positions_PD)[None], self.heads)[0]
        position_scores_BHSS = shift_relative((query_BHSA + self.position_bias) @ position_HPA.transpose(1, 2))
        content_scores_BHSS = (query_BHSA + self.content_bias) @ key_BHSA.transpose(2, 3)
        scores_BHSS = (content_scores_BHSS + position_scores_BHSS) * query_BHSA.shape[3] ** -0.5
        weights_BHSS = scores_BHSS.float().masked_fill(~mask_BS[:, None, None], float("-inf")).softmax(-1)
        read_BHSA = self.drop(weights_BHSS).to(value_BHSA.dtype) @ value_BHSA
        return self.output(read_BHSA.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class ConvolutionModule(nn.Module):
    """Pointwise convolution with a gate, depthwise convolution over time, batch normalisation, Swish, pointwise."""

    def __init__(self, size: int, kernel: int) -> None:
        super().__init__()
        self.widen = nn.Linear(size, 2 * size)
        self.depthwise = nn.Conv1d(size, size, kernel, padding=kernel // 2, groups=size, bias=False)
        self.norm = MaskedBatchNorm(size)
        self.output = nn.Linear(size, size)

    def forward(self, frames_BSD: Tensor, lengths_B: Tensor) -> Tensor:
        """What each frame reads from its neighbours; padding counts as zeros."""
        gated_BSD = zero_padding(nn.functional.glu(self.widen(frames_BSD)), lengths_B)
        convolved_BDS = self.depthwise(gated_BSD.transpose(1, 2))
        normed_BDS = self.norm(convolved_BDS[..., None], lengths_B)[..., 0]
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
        """The frames after the block, with arbitrary values in the padding."""
        mask_BS = length_mask(lengths_B, frames_BSD.shape[1])
        frames_BSD = frames_BSD + 0.5 * self.first(frames_BSD)
        frames_BSD = frames_BSD + self.drop(self.attention(self.attention_norm(frames_BSD), positions_PD, mask_BS))
        frames_BSD = frames_BSD + self.drop(self.convolution(self.convolution_norm(frames_BSD), lengths_B))
        return self.norm(frames_BSD + 0.5 * self.second(frames_BSD))  # type: ignore[no-any-return]


class Subsampling(nn.Module):
    """Two 3 x 3 convolutions that leave every fourth frame, and a projection."""

    def __init__(self, features: int, channels: int, size: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.project = nn.Linear(channels * -(-features // _REDUCTION), size)

    def forward(self, features_BTF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(frames_BSD, lengths_B) after the reduction."""
        maps_BCTF = zero_padding(features_BTF, lengths_B)[:, None]
        for convolution in (self.first, self.second):
            lengths_B = reduced_lengths(lengths_B, 2)
            maps_BCTF = convolution(maps_BCTF).relu()
            padding_BT = ~length_mask(lengths_B, maps_BCTF.shape[2])
            maps_BCTF = maps_BCTF.masked_fill(padding_BT[:, None, :, None], 0.0)
        return self.project(maps_BCTF.transpose(1, 2).flatten(2)), lengths_B


@serializable
class ConformerEncoder(Encoder):
    """Sub-sampling to a quarter of the frames, then `layers` blocks. `channels` are those of the sub-sampling."""

    size: int = 144
    layers: int = 16
    heads: int = 4
    kernel: int = 31
    expansion: int = 4
    channels: int = 144
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.size % self.heads or self.size % 2:
            raise UsageError(f"`size` must be even and a multiple of `heads`, got {self.size} and {self.heads} heads.")
        if self.kernel % 2 == 0:
            raise UsageError(f"`kernel` must be odd, so that it has a middle, got {self.kernel}.")

    @property
    def frame_reduction(self) -> int:
        return _REDUCTION

    @property
    def output_size(self) -> int:
        """Width of a block."""
        return self.size

    def build(self, features: int) -> None:
        self.subsampling = Subsampling(features, self.channels, self.size)
        self.blocks = nn.ModuleList(
            ConformerBlock(self.size, self.heads, self.kernel, self.expansion, self.dropout) for _ in range(self.layers)
        )
        self.drop = nn.Dropout(self.dropout)

    def forward(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        frames_BSD, lengths_B = self.subsampling(features_BTF, feature_lengths_B)
        positions_PD = relative_positions(frames_BSD.shape[1], self.size, frames_BSD)
        frames_BSD = self.drop(frames_BSD)
        for block in self.blocks:
            frames_BSD = block(frames_BSD, lengths_B, positions_PD)
        return zero_padding(frames_BSD, lengths_B), lengths_B


_PAPER_SIZES = {"S": (144, 16, 4), "M": (256, 16, 4), "L": (512, 17, 8)}


@serializable
class Conformer(Recogniser):
    """A Conformer encoder under CTC and, if it has one, an attention decoder beside it.

    Weights of a block of size d with kernel k: two feed forward layers 2 * 8 d^2, attention 5 d^2 (one of them for
    positions), convolution 3 d^2 + k d: together 24 d^2 + k d. Weights of the encoder with 80 features and kernel 31
    (the paper has 32; an odd kernel has a middle); biases and norms add 1 %. In brackets is what the paper counts, with
    a transducer on top:
        S   16 * (24*144^2 + 31*144) + 9*144 + 9*144^2 + 20*144*144  =   8.6 M   (10.3 M)
        M   16 * (24*256^2 + 31*256) + 9*256 + 9*256^2 + 20*256*256  =  27.2 M   (30.7 M)
        L   17 * (24*512^2 + 31*512) + 9*512 + 9*512^2 + 20*512*512  = 114.8 M   (118.8 M)
    """

    encoder: ConformerEncoder = field(default_factory=ConformerEncoder)

    @classmethod
    def paper(cls, vocabulary_size: int, features: int = 80, size: Literal["S", "M", "L"] = "S") -> Conformer:
        """One of the three sizes of the paper, under CTC."""
        width, layers, heads = _PAPER_SIZES[size]
        encoder = ConformerEncoder(size=width, layers=layers, heads=heads, channels=width)
        return cls(vocabulary_size=vocabulary_size, features=features, encoder=encoder)

    @classmethod
    def small(cls, vocabulary_size: int, features: int = 40) -> Conformer:
        """Learns digits in minutes on one CPU core."""
        encoder = ConformerEncoder(size=144, layers=4, heads=4, kernel=15, channels=32, dropout=0.0)
        return cls(vocabulary_size=vocabulary_size, features=features, encoder=encoder)

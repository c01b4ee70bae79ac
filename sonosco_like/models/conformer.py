"""Conformer (Gulati et al. 2020, arXiv 2005.08100) under CTC, an attention decoder, or both."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.models.conformer_block import ConformerBlock, relative_positions
from sonosco_like.models.masking import length_mask, reduced_lengths, zero_padding
from sonosco_like.models.parts import Encoder, Recogniser
from sonosco_like.serialization import serializable

_REDUCTION = 4


class Subsampling(nn.Module):
    """Two 3 x 3 convolutions that leave every fourth frame, and a projection."""

    def __init__(self, features: int, channels: int, size: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.project = nn.Linear(channels * -(-features // _REDUCTION), size)

    def forward(self, features_BTF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Frames and their lengths."""
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
        """Refuse sizes that do not fit one another."""
        if self.size % self.heads or self.size % 2:
            raise UsageError(f"`size` must be even and a multiple of `heads`, got {self.size} and {self.heads} heads.")
        if self.kernel % 2 == 0:
            raise UsageError(f"`kernel` must be odd, so that it has a middle, got {self.kernel}.")

    @property
    def frame_reduction(self) -> int:
        """Four."""
        return _REDUCTION

    @property
    def output_size(self) -> int:
        """Width of a block."""
        return self.size

    def build(self, features: int) -> None:
        """Make the layers."""
        self.subsampling = Subsampling(features, self.channels, self.size)
        self.blocks = nn.ModuleList(
            ConformerBlock(self.size, self.heads, self.kernel, self.expansion, self.dropout) for _ in range(self.layers)
        )
        self.drop = nn.Dropout(self.dropout)

    def forward(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(encoded_BSD, encoded_lengths_B), padding zeroed."""
        frames_BSD, lengths_B = self.subsampling(features_BTF, feature_lengths_B)
        positions_PD = relative_positions(frames_BSD.shape[1], self.size, frames_BSD)
        frames_BSD = self.drop(frames_BSD)
        for block in self.blocks:
            frames_BSD = block(frames_BSD, lengths_B, positions_PD)
        return zero_padding(frames_BSD, lengths_B), lengths_B


_PAPER_SIZES = {"S": (144, 16, 4), "M": (256, 16, 4), "L": (512, 17, 8)}


@serializable
class Conformer(Recogniser):
    """A Conformer encoder under CTC and, if a `decoder` is given, an attention decoder beside.

    Weights of a block of size d with kernel k: two feed forward layers 2 * 8 d^2, attention 5 d^2 (one of them for
    positions), convolution 3 d^2 + k d: together 24 d^2 + k d. Weights of the encoder with 80 features, kernel 31 (the
    paper says 32; an odd kernel has a middle), biases and norms adding 1 % (in brackets what the paper
    counts, with a transducer on top):
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

"""Deep Speech 2 (Amodei et al. 2015, arXiv 1512.02595): 2-D convolutions, recurrent layers, CTC.

Shape suffixes as in `records`; here also C channels.
"""

from __future__ import annotations

import math
from dataclasses import field

from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.models.layers import Bidirectional, Cell, LookAhead, MaskedBatchNorm, Recurrent
from sonosco_like.models.recogniser import Encoder, Recogniser
from sonosco_like.serialization import serializable
from sonosco_like.tensors import length_mask, reduced_lengths, zero_padding

CLIP = 20.0


@serializable
class SpectrogramConvolution(nn.Module):
    """One 2-D convolution over time and frequency, batch normalisation, ReLU clipped at 20. Kernel sizes are odd."""

    channels: int = 32
    time_kernel: int = 11
    frequency_kernel: int = 41
    time_stride: int = 1
    frequency_stride: int = 2

    def __post_init__(self) -> None:
        # Only odd kernels keep an utterance's length independent of its padding.
        if self.time_kernel % 2 == 0 or self.frequency_kernel % 2 == 0:
            raise UsageError(f"Kernel sizes must be odd, got {self.time_kernel} and {self.frequency_kernel}.")

    def build(self, input_channels: int) -> None:
        kernel = (self.time_kernel, self.frequency_kernel)
        self.convolution = nn.Conv2d(
            input_channels, self.channels, kernel, (self.time_stride, self.frequency_stride),
            padding=(self.time_kernel // 2, self.frequency_kernel // 2), bias=False,
        )  # fmt: skip
        self.norm = MaskedBatchNorm(self.channels)

    def output_frequencies(self, frequencies: int) -> int:
        """How many frequency bins the convolution leaves of this number."""
        return -(-frequencies // self.frequency_stride)

    def forward(self, maps_BCTF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(maps_BCTF, lengths_B) after the convolution, with zeros in the padding."""
        lengths_B = reduced_lengths(lengths_B, self.time_stride)
        maps_BCTF = self.norm(self.convolution(maps_BCTF), lengths_B).clamp(0.0, CLIP)
        padding_BT = ~length_mask(lengths_B, maps_BCTF.shape[2])
        return maps_BCTF.masked_fill(padding_BT[:, None, :, None], 0.0), lengths_B


def _paper_convolutions() -> list[SpectrogramConvolution]:
    return [
        SpectrogramConvolution(frequency_kernel=41, time_stride=2),
        SpectrogramConvolution(frequency_kernel=21),
    ]


@serializable
class DeepSpeech2Encoder(Encoder):
    """Convolutions, then recurrent layers whose directions are summed.

    With `bidirectional: false` a look-ahead convolution of `look_ahead` future frames follows, for streaming.
    """

    convolutions: list[SpectrogramConvolution] = field(default_factory=_paper_convolutions)
    cell: Cell = "gru"
    hidden_size: int = 800
    layers: int = 5
    bidirectional: bool = True
    look_ahead: int = 20
    batch_norm: bool = True
    dropout: float = 0.0

    @property
    def frame_reduction(self) -> int:
        """The product of the time strides."""
        return math.prod(layer.time_stride for layer in self.convolutions)

    @property
    def output_size(self) -> int:
        """Units of a recurrent layer: its directions are summed."""
        return self.hidden_size

    def build(self, features: int) -> None:
        channels = 1
        for layer in self.convolutions:
            layer.build(channels)
            channels, features = layer.channels, layer.output_frequencies(features)
        self.convolutional = nn.ModuleList(self.convolutions)
        sizes = [channels * features] + [self.hidden_size] * self.layers
        self.recurrent = nn.ModuleList(self._layer(size) for size in sizes[:-1])
        self.ahead = None if self.bidirectional else LookAhead(self.hidden_size, self.look_ahead)
        self.drop = nn.Dropout(self.dropout)

    def _layer(self, input_size: int) -> nn.Module:
        if self.bidirectional:
            return Bidirectional(self.cell, input_size, self.hidden_size, self.batch_norm, join="sum")
        return Recurrent(self.cell, input_size, self.hidden_size, self.batch_norm)

    def forward(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        maps_BCTF, lengths_B = zero_padding(features_BTF, feature_lengths_B)[:, None], feature_lengths_B
        for layer in self.convolutional:
            maps_BCTF, lengths_B = layer(maps_BCTF, lengths_B)
        frames_BSD = maps_BCTF.transpose(1, 2).flatten(2)
        for layer in self.recurrent:
            frames_BSD = zero_padding(self.drop(layer(frames_BSD, lengths_B)), lengths_B)
        if self.ahead is not None:
            frames_BSD = zero_padding(self.ahead(frames_BSD, lengths_B), lengths_B)
        return frames_BSD, lengths_B


@serializable
class DeepSpeech2(Recogniser):
    """Deep Speech 2: `DeepSpeech2Encoder` under CTC.

    Weights at the paper's sizes, with 161 bins, so 41 * 32 = 1312 values behind the second convolution, and 29 symbols
    (biases and normalisation add less than 0.2 %):
        convolutions           32*41*11 + 32*32*21*11                          =  0.25 M
        5 x 800 biGRU          2*3*(1312 + 800)*800 + 4 * 2*3*(800 + 800)*800  = 40.86 M
        7 x 1760 biRNN         2*(1312 + 1760)*1760 + 6 * 2*(1760 + 1760)*1760 = 85.15 M
        output                 800*29, 1760*29                                 =  0.02 M, 0.05 M
    """

    encoder: DeepSpeech2Encoder = field(default_factory=DeepSpeech2Encoder)

    @classmethod
    def paper(cls, vocabulary_size: int, features: int = 161) -> DeepSpeech2:
        """Two convolutions and five bidirectional GRU layers of 800."""
        return cls(vocabulary_size=vocabulary_size, features=features)

    @classmethod
    def small(cls, vocabulary_size: int, features: int = 40) -> DeepSpeech2:
        """Learns digits in minutes on one CPU core."""
        convolutions = [
            SpectrogramConvolution(channels=16, time_kernel=7, frequency_kernel=11, time_stride=2),
            SpectrogramConvolution(channels=32, time_kernel=5, frequency_kernel=5, time_stride=2),
        ]
        encoder = DeepSpeech2Encoder(convolutions=convolutions, cell="lstm", hidden_size=192, layers=3, dropout=0.1)
        return cls(vocabulary_size=vocabulary_size, features=features, encoder=encoder)

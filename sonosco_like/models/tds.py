"""Time-depth separable convolutions (Hannun et al. 2019, arXiv 1904.02619): the encoder, its decoder, and the model.

Shape suffixes as in `records`; here also W width (features of a frame), C channels, with D = W * C; N rows of a search,
K units of the GRU, A size of a key, E size of a value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.models.attention import (
    Memory,
    check_share,
    check_window_sigma,
    prepend_start,
    replace_at_random,
    soft_window,
)
from sonosco_like.models.recogniser import AttentionDecoder, Encoder, Recogniser
from sonosco_like.serialization import serializable, state
from sonosco_like.tensors import length_mask, reduced_lengths, zero_padding

NormOver = Literal["utterance", "frame"]


class UtteranceNorm(nn.Module):
    """Layer normalisation over the real frames of an utterance and all their values, then one scale and one shift."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, frames_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        """The normalised frames, with zeros in the padding."""
        padding_BT1 = ~length_mask(lengths_B, frames_BTD.shape[1])[:, :, None]
        count_B11 = (lengths_B * frames_BTD.shape[2])[:, None, None]
        wide_BTD = frames_BTD.float().masked_fill(padding_BT1, 0.0)
        mean_B11 = wide_BTD.sum((1, 2), keepdim=True) / count_B11
        centred_BTD = (wide_BTD - mean_B11).masked_fill(padding_BT1, 0.0)
        variance_B11 = centred_BTD.square().sum((1, 2), keepdim=True) / count_B11
        normed_BTD = centred_BTD * (self.scale * torch.rsqrt(variance_B11 + 1e-5)) + self.shift
        return normed_BTD.masked_fill(padding_BT1, 0.0)


class FrameNorm(nn.LayerNorm):
    """Layer normalisation of each frame by itself, which a streaming recogniser can do."""

    def forward(self, frames_BTD: Tensor, lengths_B: Tensor) -> Tensor:  # type: ignore[override]
        """The normalised frames, with zeros in the padding."""
        return zero_padding(super().forward(frames_BTD), lengths_B)


def _make_norm(over: NormOver, size: int) -> nn.Module:
    return UtteranceNorm() if over == "utterance" else FrameNorm(size)


class TimeConvolution(nn.Module):
    """A convolution over time alone, the same at every frequency; frames hold width * channels values."""

    def __init__(self, width: int, channels: tuple[int, int], kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.width = width
        self.convolution = nn.Conv2d(*channels, (kernel, 1), (stride, 1), padding=(kernel // 2, 0))

    def forward(self, frames_BTD: Tensor) -> Tensor:
        """Convolve; the view as maps_BCTW is channels-last, so that nothing is copied."""
        batch, frames, _ = frames_BTD.shape
        maps_BCTW = frames_BTD.view(batch, frames, self.width, -1).permute(0, 3, 1, 2)
        return self.convolution(maps_BCTW).permute(0, 2, 3, 1).flatten(2)  # type: ignore[no-any-return]


class TDSBlock(nn.Module):
    """A convolution over time, two fully connected layers over width and channels, each with a residual and a norm."""

    def __init__(self, width: int, channels: int, kernel: int, dropout: float, norm_over: NormOver) -> None:
        super().__init__()
        size = width * channels
        self.convolution = TimeConvolution(width, (channels, channels), kernel)
        self.norm = _make_norm(norm_over, size)
        self.inner = nn.Linear(size, size)
        self.outer = nn.Linear(size, size)
        self.outer_norm = _make_norm(norm_over, size)
        self.drop = nn.Dropout(dropout)

    def forward(self, frames_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        """The new frames; `frames_BTD` must be zero beyond `lengths_B`, and the result is zero there, too."""
        convolved_BTD = self.drop(self.convolution(frames_BTD).relu())
        frames_BTD = self.norm(frames_BTD + convolved_BTD, lengths_B)
        deep_BTD = self.drop(self.outer(self.drop(self.inner(frames_BTD).relu())))
        return self.outer_norm(frames_BTD + deep_BTD, lengths_B)  # type: ignore[no-any-return]


@serializable
class TDSGroup(nn.Module):
    """A convolution that leaves every `stride`-th frame with `channels` channels, then `blocks` TDS blocks."""

    channels: int = 10
    blocks: int = 2
    kernel: int = 21
    stride: int = 2

    def __post_init__(self) -> None:
        if self.kernel % 2 == 0:  # only odd ones keep an utterance's length independent of its padding
            raise UsageError(f"`kernel` must be odd, got {self.kernel}.")

    def build(self, width: int, input_channels: int, dropout: float, norm_over: NormOver) -> None:
        self.convolution = TimeConvolution(width, (input_channels, self.channels), self.kernel, self.stride)
        self.norm = _make_norm(norm_over, width * self.channels)
        self.drop = nn.Dropout(dropout)
        self.deep = nn.ModuleList(
            TDSBlock(width, self.channels, self.kernel, dropout, norm_over) for _ in range(self.blocks)
        )

    def forward(self, frames_BTD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(frames_BTD, lengths_B) after sub-sampling; the given frames must be zero beyond their lengths."""
        lengths_B = reduced_lengths(lengths_B, self.stride)
        frames_BTD = self.norm(self.drop(self.convolution(frames_BTD).relu()), lengths_B)
        for block in self.deep:
            frames_BTD = block(frames_BTD, lengths_B)
        return frames_BTD, lengths_B


def _paper_groups() -> list[TDSGroup]:
    return [TDSGroup(channels=10, blocks=2), TDSGroup(channels=14, blocks=3), TDSGroup(channels=18, blocks=6)]


@serializable
class TDSEncoder(Encoder):
    """Groups of TDS blocks. No convolution mixes the features: the width of a frame stays the number of features."""

    groups: list[TDSGroup] = field(default_factory=_paper_groups)
    dropout: float = 0.2
    norm_over: NormOver = "utterance"

    def __post_init__(self) -> None:
        if not self.groups:
            raise UsageError("`groups` must name at least one group of TDS blocks.")

    @property
    def frame_reduction(self) -> int:
        """The product of the groups' strides: eight in the paper."""
        return math.prod(group.stride for group in self.groups)

    @property
    def output_size(self) -> int:
        """Width times the channels of the last group: 80 * 18 = 1440 in the paper."""
        return self._output_size

    @property
    def receptive_field(self) -> int:
        """Input frames that one encoded frame can depend on, without the effect of normalisation."""
        frames, reduction = 1, 1
        for group in self.groups:
            frames += (group.kernel - 1) * reduction
            reduction *= group.stride
            frames += (group.kernel - 1) * reduction * group.blocks
        return frames

    def build(self, features: int) -> None:
        channels = 1
        for group in self.groups:
            group.build(features, channels, self.dropout, self.norm_over)
            channels = group.channels
        self.stages = nn.ModuleList(self.groups)
        self._output_size = features * channels

    def forward(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        frames_BTD, lengths_B = zero_padding(features_BTF, feature_lengths_B), feature_lengths_B
        for stage in self.stages:
            frames_BTD, lengths_B = stage(frames_BTD, lengths_B)
        return frames_BTD, lengths_B


@dataclass(frozen=True, slots=True)
class KeyValueState:
    """What the decoder remembers of each row: the state of its GRU, and the encoded frames."""

    hidden_NK: Tensor
    memory: Memory

    def select(self, index_N: Tensor) -> KeyValueState:
        return KeyValueState(self.hidden_NK[index_N], self.memory.select(index_N))


@serializable
class KeyValueDecoder(AttentionDecoder):
    """Q = GRU(labels), S = softmax(Q K' / sqrt(size)) V, P = softmax(linear(Q, S)).

    The GRU reads labels only, never what attention read, so that training needs no loop over labels. In training,
    `random_sampling` is the share of input labels that are replaced by random ones. While `soft_window` is on,
    attention is drawn to the diagonal in training, `window_sigma` encoded frames wide; `soft_window` is state, because
    a run may turn it off.
    """

    size: int = 512
    dropout: float = 0.0
    random_sampling: float = 0.0
    window_sigma: float | None = None
    soft_window: bool = state(True)

    def __post_init__(self) -> None:
        check_share("random_sampling", self.random_sampling)
        check_window_sigma(self.window_sigma)

    def build(self, encoded_size: int, vocabulary_size: int) -> None:
        self.vocabulary_size = vocabulary_size
        self.key_value = nn.Linear(encoded_size, 2 * self.size)
        self.embedding = nn.Embedding(vocabulary_size, self.size)
        self.gru = nn.GRU(self.size, self.size, batch_first=True)
        self.drop = nn.Dropout(self.dropout)
        self.output = nn.Linear(2 * self.size, vocabulary_size)

    def start(self, encoded_BSD: Tensor, encoded_lengths_B: Tensor) -> KeyValueState:
        keys_BHSA, values_BHSE = self.key_value(encoded_BSD)[:, None].chunk(2, dim=-1)
        hidden_BK = encoded_BSD.new_zeros(encoded_BSD.shape[0], self.size)
        return KeyValueState(hidden_BK, Memory.of_utterances(keys_BHSA, values_BHSE, encoded_lengths_B))

    def step(self, labels_N: Tensor, state: KeyValueState) -> tuple[Tensor, Tensor, KeyValueState]:
        query_N1K, hidden_1NK = self.gru(self.embedding(labels_N)[:, None], state.hidden_NK[None].contiguous())
        logits_N1V, weights_NH1S = self._attend(query_N1K, state.memory, None)
        return logits_N1V[:, 0].float().log_softmax(-1), weights_NH1S[:, :, 0], replace(state, hidden_NK=hidden_1NK[0])

    def forward(
        self, encoded_BSD: Tensor, encoded_lengths_B: Tensor, labels_BU: Tensor, label_lengths_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        memory = self.start(encoded_BSD, encoded_lengths_B).memory
        window_BUS = None
        if self.training:
            labels_BU = replace_at_random(labels_BU, label_lengths_B, self.random_sampling, self.vocabulary_size)
            if self.soft_window and self.window_sigma is not None:
                size = (labels_BU.shape[1] + 1, encoded_BSD.shape[1])
                window_BUS = soft_window(encoded_lengths_B, label_lengths_B, size, self.window_sigma)
        queries_BUK, _ = self.gru(self.drop(self.embedding(prepend_start(labels_BU))))
        return self._attend(queries_BUK, memory, window_BUS)

    def _attend(self, queries_NUK: Tensor, memory: Memory, window_NUS: Tensor | None) -> tuple[Tensor, Tensor]:
        """(logits_NUV, weights_NHUS) of these queries."""
        scores_NHUS = queries_NUK[:, None] @ memory.keys_NHSA.transpose(-1, -2) * self.size**-0.5
        if window_NUS is not None:
            scores_NHUS = scores_NHUS + window_NUS[:, None]
        weights_NHUS = memory.masked_softmax(scores_NHUS)
        read_NUE = (weights_NHUS.to(memory.values_NHSE.dtype) @ memory.values_NHSE)[:, 0]
        return self.output(self.drop(torch.cat([queries_NUK, read_NUE], dim=2))), weights_NHUS


@serializable
class TDS(Recogniser):
    """Time-depth separable convolutions under a key-value attention decoder, or under CTC.

    Weights of the encoder at the paper's size, 80 features, kernels of 21 (biases and norms add 0.1 %):
        convolutions   21 * (1*10 + 10*14 + 14*18)                          = 0.01 M
        2 blocks       2 * (21*10*10 + 2 * 800*800)                         = 2.56 M
        3 blocks       3 * (21*14*14 + 2 * 1120*1120)                       = 7.54 M
        6 blocks       6 * (21*18*18 + 2 * 1440*1440)                       = 24.92 M
        keys, values   1440 * 1024, kept in the decoder                     = 1.47 M      together 36.5 M
    """

    encoder: TDSEncoder = field(default_factory=TDSEncoder)
    attention_decoder: AttentionDecoder | None = field(default_factory=KeyValueDecoder)
    ctc: bool = False

    @classmethod
    def paper(cls, vocabulary_size: int, features: int = 80) -> TDS:
        """The model of the paper, which has 10,000 word pieces; 1 % of the decoder's inputs are replaced at random."""
        decoder = KeyValueDecoder(random_sampling=0.01, window_sigma=4.0)
        return cls(vocabulary_size=vocabulary_size, features=features, attention_decoder=decoder)

    @classmethod
    def small(cls, vocabulary_size: int, features: int = 40) -> TDS:
        """Learns digits in minutes on one CPU core, under CTC: attention TDS is fragile on little data."""
        groups = [
            TDSGroup(channels=10, blocks=1, kernel=9),
            TDSGroup(channels=14, blocks=3, kernel=9),
        ]
        encoder = TDSEncoder(groups=groups, dropout=0.0, norm_over="frame")
        return cls(
            vocabulary_size=vocabulary_size, features=features, encoder=encoder, attention_decoder=None, ctc=True
        )

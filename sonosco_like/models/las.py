"""Listen, Attend and Spell (Chan et al. 2015, arXiv 1508.01211): the listener, the speller, and the model.

Shape suffixes as in `records`; here also N rows of a search, E size of an embedding, K units of an LSTM layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.models.attention import (
    Attention,
    Memory,
    check_share,
    check_window_sigma,
    positions_to_replace,
    prepend_start,
    soft_window,
)
from sonosco_like.models.layers import Bidirectional
from sonosco_like.models.recogniser import AttentionDecoder, Encoder, Recogniser
from sonosco_like.serialization import serializable, state
from sonosco_like.tensors import stack_neighbours, zero_padding


@serializable
class Listener(Encoder):
    """One bidirectional LSTM layer, `layers` pyramidal ones on top, then `plain_layers` that keep the frames.

    A pyramidal layer reads two neighbouring frames of the layer below at once. `stack` input frames are joined before
    the first layer, which saves most of its time. `pyramid: false` turns all layers into plain ones. `batch_norm` is
    that of Deep Speech 2, on each layer's input term; the paper has none, but on little data it learns much sooner.
    """

    hidden_size: int = 256
    layers: int = 3
    pyramid: bool = True
    plain_layers: int = 0
    stack: int = 1
    dropout: float = 0.0
    batch_norm: bool = False

    def __post_init__(self) -> None:
        if self.stack < 1 or self.layers < 0 or self.plain_layers < 0:
            raise UsageError("`stack` must be at least 1, `layers` and `plain_layers` at least 0.")

    @property
    def frame_reduction(self) -> int:
        """Eight in the paper: three pyramidal layers."""
        return self.stack * (2**self.layers if self.pyramid else 1)

    @property
    def output_size(self) -> int:
        """Both directions side by side."""
        return 2 * self.hidden_size

    def build(self, features: int) -> None:
        self.factors = [1] + [2 if self.pyramid else 1] * self.layers + [1] * self.plain_layers
        sizes = [features * self.stack] + [self.output_size * factor for factor in self.factors[1:]]
        self.recurrent = nn.ModuleList(
            Bidirectional("lstm", size, self.hidden_size, self.batch_norm, join="concatenate") for size in sizes
        )
        self.drop = nn.Dropout(self.dropout)

    def forward(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        frames_BTD, lengths_B = zero_padding(features_BTF, feature_lengths_B), feature_lengths_B
        for layer, factor in zip(self.recurrent, [self.stack, *self.factors[1:]], strict=True):
            if factor > 1:
                frames_BTD, lengths_B = stack_neighbours(frames_BTD, lengths_B, factor)
            frames_BTD = zero_padding(self.drop(layer(frames_BTD, lengths_B)), lengths_B)
        return frames_BTD, lengths_B


@dataclass(frozen=True, slots=True)
class SpellerState:
    """What the speller remembers of each row.

    ```
    layers       (hidden_NK, cell_NK) of each LSTM layer
    context_ND   what the last step read
    weights_NHS  where the last step read it
    memory       the encoded frames
    ```
    """

    layers: tuple[tuple[Tensor, Tensor], ...]
    context_ND: Tensor
    weights_NHS: Tensor
    memory: Memory

    def select(self, index_N: Tensor) -> SpellerState:
        layers = tuple((hidden_NK[index_N], cell_NK[index_N]) for hidden_NK, cell_NK in self.layers)
        memory = self.memory.select(index_N)
        return SpellerState(layers, self.context_ND[index_N], self.weights_NHS[index_N], memory)

    @property
    def output_input(self) -> Tensor:
        """(N, K + D): what the output layers read, the top LSTM layer and the context side by side."""
        return torch.cat([self.layers[-1][0], self.context_ND], dim=1)


@serializable
class Speller(AttentionDecoder):
    """s_i = LSTM(s_{i-1}, y_{i-1}, c_{i-1}), c_i = attention(s_i, h), P(y_i) from an MLP of (s_i, c_i).

    The input of a step needs the step before, so training loops over labels; what does not need it (embeddings, keys,
    the output MLP) is done for all labels at once. In training, `scheduled_sampling` is the share of input labels that
    are drawn from the model's own prediction. While `soft_window` is on, attention is drawn to the diagonal in
    training, `window_sigma` encoded frames wide; `soft_window` is state, because a run may turn it off.
    """

    hidden_size: int = 512
    layers: int = 2
    embedding_size: int = 512
    attention: Attention = field(default_factory=Attention)
    dropout: float = 0.0
    scheduled_sampling: float = 0.0
    window_sigma: float | None = None
    soft_window: bool = state(True)

    def __post_init__(self) -> None:
        check_share("scheduled_sampling", self.scheduled_sampling)
        check_window_sigma(self.window_sigma)

    def build(self, encoded_size: int, vocabulary_size: int) -> None:
        self.embedding = nn.Embedding(vocabulary_size, self.embedding_size)
        sizes = [self.embedding_size + encoded_size] + [self.hidden_size] * (self.layers - 1)
        self.cells = nn.ModuleList(nn.LSTMCell(size, self.hidden_size) for size in sizes)
        self.attention.build(self.hidden_size, encoded_size)
        self.drop = nn.Dropout(self.dropout)
        self.combine = nn.Linear(self.hidden_size + encoded_size, self.hidden_size)
        self.output = nn.Linear(self.hidden_size, vocabulary_size)

    def start(self, encoded_BSD: Tensor, encoded_lengths_B: Tensor) -> SpellerState:
        memory = self.attention.make_memory(encoded_BSD, encoded_lengths_B)
        zeros_BK = encoded_BSD.new_zeros(encoded_BSD.shape[0], self.hidden_size)
        layers = tuple((zeros_BK, zeros_BK) for _ in self.cells)
        return SpellerState(layers, torch.zeros_like(encoded_BSD[:, 0]), self.attention.first_weights(memory), memory)

    def step(self, labels_N: Tensor, state: SpellerState) -> tuple[Tensor, Tensor, SpellerState]:
        state = self._advance(self.embedding(labels_N), state)
        return self._logits(state.output_input).float().log_softmax(-1), state.weights_NHS, state

    def forward(
        self, encoded_BSD: Tensor, encoded_lengths_B: Tensor, labels_BU: Tensor, label_lengths_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        inputs_BU = prepend_start(labels_BU)
        embedded_UBE = self.drop(self.embedding(inputs_BU)).transpose(0, 1).unbind()
        replaced_BU, has_replaced_U = self._inputs_to_sample(label_lengths_B, labels_BU.shape[1])
        state = self.start(encoded_BSD, encoded_lengths_B)
        windows = self._windows(encoded_lengths_B, label_lengths_B, (len(embedded_UBE), encoded_BSD.shape[1]))
        output_inputs: list[Tensor] = []
        weights: list[Tensor] = []
        for position, embedded_BE in enumerate(embedded_UBE):
            if has_replaced_U[position]:
                sampled_BE = self.embedding(self._sample_labels(output_inputs[-1]))
                embedded_BE = torch.where(replaced_BU[:, position, None], sampled_BE, embedded_BE)
            state = self._advance(embedded_BE, state, windows[position])
            output_inputs.append(state.output_input)
            weights.append(state.weights_NHS)
        return self._logits(torch.stack(output_inputs, dim=1)), torch.stack(weights, dim=2)

    def _advance(self, embedded_NE: Tensor, state: SpellerState, window_NS: Tensor | None = None) -> SpellerState:
        below_NK = torch.cat([embedded_NE, state.context_ND], dim=1)
        layers = []
        for cell, before in zip(self.cells, state.layers, strict=True):
            hidden_NK, cell_NK = cell(below_NK, before)
            layers.append((hidden_NK, cell_NK))
            below_NK = self.drop(hidden_NK)
        context_ND, weights_NHS = self.attention(layers[-1][0], state.memory, state.weights_NHS, window_NS)
        return SpellerState(tuple(layers), context_ND, weights_NHS, state.memory)

    def _windows(
        self, encoded_lengths_B: Tensor, label_lengths_B: Tensor, size: tuple[int, int]
    ) -> list[Tensor | None]:
        """The window_BS of each position, if training still uses them."""
        if not (self.training and self.soft_window and self.window_sigma is not None):
            return [None] * size[0]
        window_BUS = soft_window(encoded_lengths_B, label_lengths_B, size, self.window_sigma)
        return list(window_BUS.unbind(1))

    def _logits(self, output_input: Tensor) -> Tensor:
        logits: Tensor = self.output(self.drop(self.combine(output_input).tanh()))
        return logits

    def _inputs_to_sample(self, label_lengths_B: Tensor, labels: int) -> tuple[Tensor, list[bool]]:
        """(mask_BU of the inputs to draw from the model, never START; for each position whether there is any)."""
        share = self.scheduled_sampling if self.training else 0.0
        if share == 0.0 or labels == 0:
            return label_lengths_B, [False] * (labels + 1)
        replaced_BU = nn.functional.pad(positions_to_replace(label_lengths_B, labels, share), (1, 0))
        return replaced_BU, replaced_BU.any(0).tolist()

    @torch.no_grad()
    def _sample_labels(self, output_input: Tensor) -> Tensor:
        return torch.multinomial(self._logits(output_input).float().softmax(-1), 1)[:, 0]


@serializable
class LAS(Recogniser):
    """A pyramid of bidirectional LSTM layers, and a speller with attention.

    The paper has no CTC output (`ctc: false`); with it, and a joint loss, attention learns to align in minutes. If
    `initial_range` is given (0.1 in the paper), every weight is drawn from U(-initial_range, initial_range).

    Weights at the paper's size, 40 features and V symbols (biases add 0.2 %):
        listener   2*4*256*(40 + 256) + 3 * 2*4*256*(4*256 + 256)         = 8.47 M
        speller    embedding 512*V, 4*512*(512 + 512 + 512) + 4*512*(512 + 512) = 5.24 M + 512 V
        attention  phi 512*512, psi 512*512                               = 0.52 M
        output     (512 + 512)*512 + 512*V                                = 0.52 M + 512 V
    """

    encoder: Listener = field(default_factory=Listener)
    attention_decoder: AttentionDecoder | None = field(default_factory=Speller)
    ctc: bool = False
    initial_range: float | None = None

    def build(self) -> None:
        super().build()
        if self.initial_range is not None:
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -self.initial_range, self.initial_range)

    @classmethod
    def paper(cls, vocabulary_size: int, features: int = 40) -> LAS:
        """The model of the paper, with 10 % of the speller's inputs sampled from its own predictions."""
        decoder = Speller(scheduled_sampling=0.1)
        return cls(vocabulary_size=vocabulary_size, features=features, attention_decoder=decoder, initial_range=0.1)

    @classmethod
    def small(cls, vocabulary_size: int, features: int = 40) -> LAS:
        """Learns digits in minutes on one CPU core: fewer units, attention that expects to advance, a CTC output."""
        encoder = Listener(hidden_size=128, layers=1, plain_layers=1, stack=2, dropout=0.1, batch_norm=True)
        attention = Attention(kind="location", size=128, frames_per_label=4.0)
        decoder = Speller(hidden_size=192, layers=1, embedding_size=64, attention=attention, dropout=0.1)
        return cls(
            vocabulary_size=vocabulary_size, features=features, encoder=encoder, attention_decoder=decoder, ctc=True
        )

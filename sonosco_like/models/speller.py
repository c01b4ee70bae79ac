"""The speller of LAS: LSTM layers that are fed what was written and what was heard, one label after another."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sonosco_like.models.attention import Attention
from sonosco_like.models.memory import Memory
from sonosco_like.models.parts import Decoder
from sonosco_like.models.sampling import check_share, decoder_inputs, positions_to_replace
from sonosco_like.models.window import check_sigma, soft_window
from sonosco_like.serialization import serializable, state


@dataclass(frozen=True, slots=True)
class SpellerState:
    """What the speller remembers of each row: its LSTM layers, what it read last and where, and the frames."""

    layers: tuple[tuple[Tensor, Tensor], ...]  # (hidden_NK, cell_NK) of each
    context_ND: Tensor
    weights_NHS: Tensor
    memory: Memory

    def select(self, index_N: Tensor) -> SpellerState:
        """The rows of `index_N`, in that order."""
        layers = tuple((hidden_NK[index_N], cell_NK[index_N]) for hidden_NK, cell_NK in self.layers)
        memory = self.memory.select(index_N)
        return SpellerState(layers, self.context_ND[index_N], self.weights_NHS[index_N], memory)


@serializable
class Speller(Decoder):
    """s_i = LSTM(s_{i-1}, y_{i-1}, c_{i-1}), c_i = attention(s_i, h), P(y_i) from an MLP of (s_i, c_i).

    The input of a step needs the step before, so training loops over labels; what does not need it (embeddings, keys,
    the output MLP) is done for all labels at once. In training, `scheduled_sampling` is the share of input labels that
    are drawn from the model's own prediction, and while `soft_window` is on (a run may turn it off: it is state),
    attention is drawn to the diagonal, `window_sigma` encoded frames wide.
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
        """Refuse what is no share or no width."""
        check_share("scheduled_sampling", self.scheduled_sampling)
        check_sigma(self.window_sigma)

    def build(self, encoded_size: int, vocabulary_size: int) -> None:
        """Make the layers."""
        self.embedding = nn.Embedding(vocabulary_size, self.embedding_size)
        sizes = [self.embedding_size + encoded_size] + [self.hidden_size] * (self.layers - 1)
        self.cells = nn.ModuleList(nn.LSTMCell(size, self.hidden_size) for size in sizes)
        self.attention.build(self.hidden_size, encoded_size)
        self.drop = nn.Dropout(self.dropout)
        self.combine = nn.Linear(self.hidden_size + encoded_size, self.hidden_size)
        self.output = nn.Linear(self.hidden_size, vocabulary_size)

    def start(self, encoded_BSD: Tensor, encoded_lengths_B: Tensor) -> SpellerState:
        """The state before the first step: one row per utterance."""
        memory = self.attention.remember(encoded_BSD, encoded_lengths_B)
        nothing_BK = encoded_BSD.new_zeros(encoded_BSD.shape[0], self.hidden_size)
        layers = tuple((nothing_BK, nothing_BK) for _ in self.cells)
        return SpellerState(layers, torch.zeros_like(encoded_BSD[:, 0]), self.attention.first_weights(memory), memory)

    def step(self, labels_N: Tensor, state: SpellerState) -> tuple[Tensor, Tensor, SpellerState]:
        """(log_probs_NV, attention_NHS, state) after the last label of each row."""
        state = self._advance(self.embedding(labels_N), state)
        return self._logits(_seen(state)).float().log_softmax(-1), state.weights_NHS, state

    def forward(
        self, encoded_BSD: Tensor, encoded_lengths_B: Tensor, labels_BU: Tensor, label_lengths_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Teacher-forced (logits_BUV, attention_BHUS) with one position more than labels: it predicts END."""
        inputs_BU = decoder_inputs(labels_BU)
        embedded_UBE = self.drop(self.embedding(inputs_BU)).transpose(0, 1).unbind()
        replaced_BU, some_replaced = self._to_sample(label_lengths_B, labels_BU.shape[1])
        state = self.start(encoded_BSD, encoded_lengths_B)
        windows = self._windows(encoded_lengths_B, label_lengths_B, (len(embedded_UBE), encoded_BSD.shape[1]))
        seen: list[Tensor] = []
        weights: list[Tensor] = []
        for position, embedded_BE in enumerate(embedded_UBE):
            if some_replaced[position]:
                own_BE = self.embedding(self._sample(seen[-1]))
                embedded_BE = torch.where(replaced_BU[:, position, None], own_BE, embedded_BE)
            state = self._advance(embedded_BE, state, windows[position])
            seen.append(_seen(state))
            weights.append(state.weights_NHS)
        return self._logits(torch.stack(seen, dim=1)), torch.stack(weights, dim=2)

    def _advance(self, embedded_NE: Tensor, state: SpellerState, window_NS: Tensor | None = None) -> SpellerState:
        below_NK = torch.cat([embedded_NE, state.context_ND], dim=1)
        layers = []
        for cell, before in zip(self.cells, state.layers, strict=True):
            hidden_NK, memory_NK = cell(below_NK, before)
            layers.append((hidden_NK, memory_NK))
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

    def _logits(self, seen: Tensor) -> Tensor:
        logits: Tensor = self.output(self.drop(self.combine(seen).tanh()))
        return logits

    def _to_sample(self, label_lengths_B: Tensor, labels: int) -> tuple[Tensor, list[bool]]:
        """Which inputs to draw from the model (START never), and at which positions there is any."""
        share = self.scheduled_sampling if self.training else 0.0
        if share == 0.0 or labels == 0:
            return label_lengths_B, [False] * (labels + 1)
        replaced_BU = nn.functional.pad(positions_to_replace(label_lengths_B, labels, share), (1, 0))
        return replaced_BU, replaced_BU.any(0).tolist()

    @torch.no_grad()
    def _sample(self, seen_NX: Tensor) -> Tensor:
        return torch.multinomial(self._logits(seen_NX).float().softmax(-1), 1)[:, 0]


def _seen(state: SpellerState) -> Tensor:
    return torch.cat([state.layers[-1][0], state.context_ND], dim=1)

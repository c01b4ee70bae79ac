"""The decoder of TDS: a GRU whose states ask all questions of an utterance at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sonosco_like.models.memory import Memory
from sonosco_like.models.parts import Decoder
from sonosco_like.models.sampling import check_share, decoder_inputs, replace_at_random
from sonosco_like.models.window import check_sigma, soft_window
from sonosco_like.serialization import serializable, state


@dataclass(frozen=True, slots=True)
class KeyValueState:
    """What the decoder remembers of each row: its GRU and the frames."""

    hidden_NK: Tensor
    memory: Memory

    def select(self, index_N: Tensor) -> KeyValueState:
        """The rows of `index_N`, in that order."""
        return KeyValueState(self.hidden_NK[index_N], self.memory.select(index_N))


@serializable
class KeyValueDecoder(Decoder):
    """Q = GRU(labels), S = softmax(Q K' / sqrt(size)) V, P = softmax(linear(Q, S)).

    The GRU reads labels only, never what was attended to, so that training needs no loop over labels. In training,
    `random_sampling` is the share of input labels replaced by random ones, and while `soft_window` is on (a run may
    turn it off: it is state) attention is drawn to the diagonal, `window_sigma` encoded frames wide.
    """

    size: int = 512
    dropout: float = 0.0
    random_sampling: float = 0.0
    window_sigma: float | None = None
    soft_window: bool = state(True)

    def __post_init__(self) -> None:
        """Refuse what is no share or no width."""
        check_share("random_sampling", self.random_sampling)
        check_sigma(self.window_sigma)

    def build(self, encoded_size: int, vocabulary_size: int) -> None:
        """Make the layers."""
        self.vocabulary_size = vocabulary_size
        self.key_value = nn.Linear(encoded_size, 2 * self.size)
        self.embedding = nn.Embedding(vocabulary_size, self.size)
        self.gru = nn.GRU(self.size, self.size, batch_first=True)
        self.drop = nn.Dropout(self.dropout)
        self.output = nn.Linear(2 * self.size, vocabulary_size)

    def start(self, encoded_BSD: Tensor, encoded_lengths_B: Tensor) -> KeyValueState:
        """The state before the first step: one row per utterance."""
        keys_BHSA, values_BHSE = self.key_value(encoded_BSD)[:, None].chunk(2, dim=-1)
        hidden_BK = encoded_BSD.new_zeros(encoded_BSD.shape[0], self.size)
        return KeyValueState(hidden_BK, Memory.of(keys_BHSA, values_BHSE, encoded_lengths_B))

    def step(self, labels_N: Tensor, state: KeyValueState) -> tuple[Tensor, Tensor, KeyValueState]:
        """(log_probs_NV, attention_NHS, state) after the last label of each row."""
        query_N1K, hidden_1NK = self.gru(self.embedding(labels_N)[:, None], state.hidden_NK[None].contiguous())
        logits_N1V, weights_NH1S = self._answer(query_N1K, state.memory, None)
        return logits_N1V[:, 0].float().log_softmax(-1), weights_NH1S[:, :, 0], replace(state, hidden_NK=hidden_1NK[0])

    def forward(
        self, encoded_BSD: Tensor, encoded_lengths_B: Tensor, labels_BU: Tensor, label_lengths_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Teacher-forced (logits_BUV, attention_BHUS) with one position more than labels: it predicts END."""
        memory = self.start(encoded_BSD, encoded_lengths_B).memory
        window_BUS = None
        if self.training:
            labels_BU = replace_at_random(labels_BU, label_lengths_B, self.random_sampling, self.vocabulary_size)
            if self.soft_window and self.window_sigma is not None:
                size = (labels_BU.shape[1] + 1, encoded_BSD.shape[1])
                window_BUS = soft_window(encoded_lengths_B, label_lengths_B, size, self.window_sigma)
        queries_BUK, _ = self.gru(self.drop(self.embedding(decoder_inputs(labels_BU))))
        return self._answer(queries_BUK, memory, window_BUS)

    def _answer(self, queries_NUK: Tensor, memory: Memory, window_NUS: Tensor | None) -> tuple[Tensor, Tensor]:
        scores_NHUS = queries_NUK[:, None] @ memory.keys_NHSA.transpose(-1, -2) * self.size**-0.5
        if window_NUS is not None:
            scores_NHUS = scores_NHUS + window_NUS[:, None]
        weights_NHUS = memory.masked_softmax(scores_NHUS)
        read_NUE = (weights_NHUS.to(memory.values_NHSE.dtype) @ memory.values_NHSE)[:, 0]
        return self.output(self.drop(torch.cat([queries_NUK, read_NUE], dim=2))), weights_NHUS

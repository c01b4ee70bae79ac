"""The smallest attention decoder: a table says what follows what, and time moves on one frame per label."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from sonosco_like.models import AttentionDecoder
from sonosco_like.records import END, START


@dataclass(frozen=True)
class TableState:
    utterance_N: torch.Tensor
    position_N: torch.Tensor

    def select(self, index_N):
        return TableState(self.utterance_N[index_N], self.position_N[index_N])


class TableDecoder(AttentionDecoder):
    """log p(label | last label, position) from `table_BUVV`.

    Attention rests on the frame of the position's number or, if it is `restless`, on one that the last label decides.
    """

    def __init__(self, table_BUVV, frames, restless=False):
        super().__init__()
        self.table_BUVV, self.frames, self.restless = table_BUVV, frames, restless

    @classmethod
    def random(cls, utterances, positions, labels, frames, seed=0, sharpness=1.5):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(utterances, positions, labels, labels, generator=generator) * sharpness
        return cls(logits.log_softmax(-1), frames)

    def build(self, encoded_size, vocabulary_size):
        raise NotImplementedError

    def forward(self, encoded_BSD, encoded_lengths_B, labels_BU, label_lengths_B):
        raise NotImplementedError

    def start(self, encoded_BSD, encoded_lengths_B):
        rows_B = torch.arange(len(encoded_lengths_B))
        return TableState(rows_B, torch.zeros_like(rows_B))

    def step(self, labels_N, state):
        position_N = state.position_N.clamp(max=self.table_BUVV.shape[1] - 1)
        log_probs_NV = self.table_BUVV[state.utterance_N, position_N, labels_N]
        frame_N = self.frame_of(position_N, labels_N)
        attention_NS = torch.nn.functional.one_hot(frame_N, self.frames).float() * 0.9 + 0.1 / self.frames
        attention_NHS = attention_NS[:, None].expand(-1, 2, -1)
        return log_probs_NV, attention_NHS, TableState(state.utterance_N, state.position_N + 1)

    def frame_of(self, position_N, label_N):
        return label_N % self.frames if self.restless else position_N.clamp(max=self.frames - 1)

    def covered_frames(self, labels):
        """How many frames are attended to while these labels and END are written."""
        inputs = torch.tensor([START, *labels])
        return len(set(self.frame_of(torch.arange(len(inputs)), inputs).tolist()))

    def log_prob(self, utterance, labels):
        """log p of exactly these labels and END."""
        total, last = 0.0, START
        for position, label in enumerate([*labels, END]):
            total += float(self.table_BUVV[utterance, min(position, self.table_BUVV.shape[1] - 1), last, label])
            last = label
        return total


@dataclass
class TableModel:
    attention_decoder: TableDecoder | None


def every_text(labels, longest):
    """All label sequences up to a length, without the special symbols but UNKNOWN."""
    for length in range(longest + 1):
        yield from itertools.product(range(END + 1, labels), repeat=length)

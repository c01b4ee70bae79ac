"""Greedy searches: the most probable label of each frame (CTC), or after each label (attention).

They are fast, and good enough to follow a training. Shape suffixes as in `records`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sonosco_like.decoding.decoder import (
    Decoder,
    Vocabulary,
    attention_decoder_of,
    attention_spans,
    ctc_log_probs,
    ctc_spans,
    hypothesis_of,
    label_limits,
    require_positive,
)
from sonosco_like.decoding.scorers import AttentionScorer
from sonosco_like.models.recogniser import SpeechModel
from sonosco_like.records import BLANK, END, START, Hypothesis, Output
from sonosco_like.serialization import serializable
from sonosco_like.tensors import length_mask


@serializable
class GreedyCTCDecoder(Decoder):
    """Best-path decoding (Graves et al. 2006) of a whole batch at once; the score is log p of the best path."""

    @torch.no_grad()
    def decode(
        self,
        output: Output,
        vocabulary: Vocabulary,
        *,
        model: SpeechModel | None = None,
        frame_seconds: float = 1.0,
    ) -> list[list[Hypothesis]]:
        """One hypothesis of each utterance."""
        best_BS, paths_BS = ctc_log_probs(output).max(-1)
        padding_BS = ~length_mask(output.encoded_lengths_B, paths_BS.shape[1])
        best_BS, paths_BS = best_BS.masked_fill(padding_BS, 0.0), paths_BS.masked_fill(padding_BS, BLANK)
        scores_B = best_BS.sum(1, dtype=torch.float32).tolist()
        all_spans = ctc_spans(paths_BS.cpu().numpy(), best_BS.cpu().numpy())
        return [
            [hypothesis_of(spans, score, vocabulary, frame_seconds)]
            for spans, score in zip(all_spans, scores_B, strict=True)
        ]


@serializable
class GreedyAttentionDecoder(Decoder):
    """The most probable next label until END, for a whole batch at once; the score is log p of the labels and END.

    A text has at most `max_length_ratio` labels per encoded frame; a longer one is cut off.
    """

    max_length_ratio: float = 1.0

    def __post_init__(self) -> None:
        require_positive(max_length_ratio=self.max_length_ratio)

    @torch.no_grad()
    def decode(
        self,
        output: Output,
        vocabulary: Vocabulary,
        *,
        model: SpeechModel | None = None,
        frame_seconds: float = 1.0,
    ) -> list[list[Hypothesis]]:
        """One hypothesis of each utterance; a token's time is where attention was when it was written."""
        labels_BU, log_probs_BU, attention_BUS = self._run(output, model)
        decoded = []
        for labels_U, log_probs_U, attention_US in zip(labels_BU, log_probs_BU, attention_BUS.numpy(), strict=True):
            length = labels_U.index(END)
            spans = attention_spans(attention_US, labels_U[:length], log_probs_U[:length].exp().tolist())
            score = float(log_probs_U[: length + 1].sum())
            decoded.append([hypothesis_of(spans, score, vocabulary, frame_seconds)])
        return decoded

    def _run(self, output: Output, model: SpeechModel | None) -> tuple[list[list[int]], Tensor, Tensor]:
        """(labels_BU with END in every row, log_probs_BU, attention_BUS), on the host."""
        limit_B = label_limits(output.encoded_lengths_B, self.max_length_ratio)
        rows_B = torch.arange(len(limit_B), device=limit_B.device)
        attention = AttentionScorer(attention_decoder_of(model), output, rows_B)
        has_ended_B = torch.zeros_like(rows_B, dtype=torch.bool)
        labels, log_probs, attentions = [], [], []
        for step in range(int(limit_B.max()) + 1):
            scores_BV = attention.scores()
            scores_BV[:, [BLANK, START]] = -torch.inf
            label_B = scores_BV.argmax(1).masked_fill(has_ended_B | (step >= limit_B), END)
            labels.append(label_B)
            log_probs.append(scores_BV[rows_B, label_B])
            attentions.append(attention.attention_NS)
            has_ended_B = has_ended_B | (label_B == END)
            if bool(has_ended_B.all()):
                break
            attention.advance(rows_B, label_B)
        stacked = [torch.stack(each, 1).cpu() for each in (labels, log_probs, attentions)]
        return stacked[0].tolist(), stacked[1], stacked[2]


def default_decoder(model: Any) -> Decoder:
    """The greedy search that fits a model: over its attention decoder if it has one, else over its CTC output."""
    return GreedyCTCDecoder() if getattr(model, "decoder", None) is None else GreedyAttentionDecoder()

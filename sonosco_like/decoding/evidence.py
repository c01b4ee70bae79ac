"""What speaks for the next label in an attention beam search: the attention decoder, the CTC output, the words.

Each gives scores_NV for the next label of every row (END among them), and is told which rows go on with which label,
and which rows to keep when the search leaves out utterances. N rows of the search: the beams of its utterances.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sonosco_like.decoding.ctc_prefix_score import IMPOSSIBLE, CTCPrefixScorer
from sonosco_like.decoding.word_scores import WordScorer
from sonosco_like.models.interfaces import AttentionDecoder, DecoderState
from sonosco_like.records import END, START, Output


class AttentionEvidence:
    """The attention decoder, one step at a time; keeps the attention of the last step."""

    def __init__(self, decoder: AttentionDecoder[DecoderState], output: Output, utterance_N: Tensor) -> None:
        self._decoder = decoder
        self._state = decoder.start(output.encoded_BSD, output.encoded_lengths_B).select(utterance_N)
        self._labels_N = torch.full_like(utterance_N, START)
        self.attention_NS = output.encoded_BSD.new_empty(0)

    def scores(self) -> Tensor:
        """log p_NV of the next label."""
        log_probs_NV, attention_NHS, self._state = self._decoder.step(self._labels_N, self._state)
        self.attention_NS = attention_NHS.float().mean(1)
        return log_probs_NV.float()

    def advance(self, rows_N: Tensor, labels_N: Tensor) -> None:
        """Go on with these rows, each with one more label."""
        self._state, self._labels_N = self._state.select(rows_N), labels_N

    def keep(self, rows_N: Tensor) -> None:
        """Forget the other rows."""
        self.advance(rows_N, self._labels_N[rows_N])


class CTCEvidence:
    """What one more label does to the CTC probability of a beginning; asked for the most promising labels only."""

    def __init__(self, scorer: CTCPrefixScorer, most_candidates: int) -> None:
        self._scorer, self._most = scorer, most_candidates
        self._beginnings = scorer.start()
        self._extended_NV = torch.empty(0)

    def scores(self, promising_NV: Tensor) -> Tensor:
        """scores_NV; labels that are not among the most promising get none at all."""
        labels_NC = promising_NV.topk(min(self._most, promising_NV.shape[1])).indices
        extended_NV = promising_NV.new_full(promising_NV.shape, IMPOSSIBLE, dtype=self._beginnings.score_N.dtype)
        extended_NV.scatter_(1, labels_NC, self._scorer.extended(self._beginnings, labels_NC))
        extended_NV[:, END] = self._scorer.finished(self._beginnings)
        self._extended_NV = extended_NV
        scores_NV = extended_NV - self._beginnings.score_N[:, None]
        return scores_NV.masked_fill(extended_NV < IMPOSSIBLE / 2, -torch.inf).float()

    def advance(self, rows_N: Tensor, labels_N: Tensor) -> None:
        """Go on with these rows, each with one more label."""
        score_N = self._extended_NV[rows_N, labels_N]
        self._beginnings = self._scorer.extend(self._beginnings.select(rows_N), labels_N, score_N)

    def keep(self, rows_N: Tensor) -> None:
        """Forget the other rows."""
        self._scorer, self._beginnings = self._scorer.select(rows_N), self._beginnings.select(rows_N)


class WordEvidence:
    """Language model, word bonus and hot words."""

    def __init__(self, scorer: WordScorer, rows: int) -> None:
        self._scorer = scorer
        self._states = [scorer.start()] * rows

    def scores(self, like_NV: Tensor) -> Tensor:
        """scores_NV in the form of `like_NV`."""
        rows_NV = np.stack([self._scorer.next_scores(state) for state in self._states])
        rows_NV[:, END] = [self._scorer.finish(state) for state in self._states]
        return torch.from_numpy(rows_NV).to(like_NV)

    def advance(self, rows_N: Tensor, labels_N: Tensor) -> None:
        """Go on with these rows, each with one more label."""
        pairs = zip(rows_N.tolist(), labels_N.tolist(), strict=True)
        self._states = [self._scorer.extend(self._states[row], label) for row, label in pairs]

    def keep(self, rows_N: Tensor) -> None:
        """Forget the other rows."""
        self._states = [self._states[row] for row in rows_N.tolist()]

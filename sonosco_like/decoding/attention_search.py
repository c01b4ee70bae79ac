"""Beam search over an attention decoder: all beams of all utterances advance together.

B utterances that the search goes on with, K beams of each, V labels, N = B * K rows in the order of utterances.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sonosco_like.decoding.beam_record import Ended, History
from sonosco_like.decoding.ctc_prefix_score import IMPOSSIBLE
from sonosco_like.decoding.evidence import AttentionEvidence, CTCEvidence, WordEvidence
from sonosco_like.records import BLANK, END, START

_WORTH_LEAVING_OUT = 0.25  # share of utterances without hope of a better reading: going on without them costs copies


@dataclass(frozen=True)
class SearchRules:
    """What the search is for: the fields of `AttentionBeamDecoder` that bear on it."""

    beam_size: int
    n_best: int
    length_power: float
    coverage_weight: float
    coverage_threshold: float
    end_threshold: float | None
    ctc_weight: float
    most_per_label: float


class AttentionBeamSearch:
    """One search; `run` it once. `limit_B` is the most labels an utterance may have."""

    def __init__(
        self,
        rules: SearchRules,
        limit_B: Tensor,
        frames_B: Tensor,
        attention: AttentionEvidence,
        ctc: CTCEvidence | None = None,
        words: WordEvidence | None = None,
    ) -> None:
        self._rules, self._limit_B, self._frames_B = rules, limit_B, frames_B
        self._attention, self._ctc, self._words = attention, ctc, words
        self._device, utterances = limit_B.device, len(limit_B)
        self._shape = utterances, rules.beam_size
        self._utterance_B = self._place_B = torch.arange(utterances, device=self._device)
        self._score_BK = torch.full(self._shape, -torch.inf, device=self._device)
        self._score_BK[:, 0] = 0.0  # all beams begin equal; one of them is enough
        self._coverage_BKS: Tensor | float = 0.0
        self.ended = Ended.none(*self._shape, self._device)
        self.history = History(utterances)

    def run(self) -> None:
        """Search until no hypothesis that goes on can become one of the `n_best`."""
        for step in range(int(self._limit_B.max()) + 1):
            log_probs_NV = self._attention.scores()
            total_BKV = self._score_BK[..., None] + self._label_scores(log_probs_NV, step).view(*self._shape, -1)
            self._end(total_BKV[..., END], step)
            self._go_on(total_BKV, log_probs_NV)
            settled_B = self._is_settled(step)
            settled = int(settled_B.sum())
            if settled == len(settled_B):
                return
            if settled >= _WORTH_LEAVING_OUT * len(settled_B):
                self._leave_out(settled_B)

    def _label_scores(self, log_probs_NV: Tensor, step: int) -> Tensor:
        """What every label adds to the score of every row; -inf for what may not be said."""
        share, forbidden_NV = self._rules.ctc_weight, self._forbidden(log_probs_NV, step)
        words_NV = self._words.scores(log_probs_NV) if self._words is not None else torch.zeros_like(log_probs_NV)
        scores_NV = (1.0 - share) * log_probs_NV.clamp(min=IMPOSSIBLE) + words_NV
        if self._ctc is not None:
            promising_NV = (log_probs_NV + words_NV).masked_fill(forbidden_NV, -torch.inf)
            scores_NV = scores_NV + share * self._ctc.scores(promising_NV)
        return scores_NV.masked_fill(forbidden_NV, -torch.inf)

    def _forbidden(self, log_probs_NV: Tensor, step: int) -> Tensor:
        """Which labels may not follow: at the limit all but END, before it an END that is not likely enough."""
        impossible_NV = log_probs_NV == -torch.inf
        at_limit_N = (step >= self._limit_B).repeat_interleave(self._rules.beam_size)
        forbidden_NV = impossible_NV | at_limit_N[:, None]
        forbidden_NV[:, [BLANK, START]] = True
        forbidden_NV[:, END] = impossible_NV[:, END]
        if self._rules.end_threshold is not None:
            best_other_N = log_probs_NV[:, END + 1 :].amax(1)
            unlikely_N = log_probs_NV[:, END] <= self._rules.end_threshold * best_other_N
            forbidden_NV[:, END] |= unlikely_N & ~at_limit_N
        return forbidden_NV

    def _end(self, total_BK: Tensor, step: int) -> None:
        """Let every row say END, and take the best into the list."""
        score_BK = total_BK / (step + 1) ** self._rules.length_power
        if self._rules.coverage_weight:
            self._coverage_BKS = self._coverage_BKS + self._attention.attention_NS.view(*self._shape, -1)
            covered_BK = (self._coverage_BKS > self._rules.coverage_threshold).sum(-1)
            score_BK = score_BK + self._rules.coverage_weight * covered_BK
        self.ended.add(self._utterance_B, score_BK, step)

    def _go_on(self, total_BKV: Tensor, log_probs_NV: Tensor) -> None:
        """Choose the best labels over all beams of each utterance, and tell everybody."""
        labels = total_BKV.shape[-1]
        total_BKV[..., END] = -torch.inf
        self._score_BK, place_BK = total_BKV.flatten(1).topk(self._rules.beam_size)
        parent_BK, label_BK = place_BK // labels, place_BK % labels
        rows_N, labels_N = self._rows(self._place_B, parent_BK), label_BK.flatten()
        confidence_BK = log_probs_NV[rows_N, labels_N].view(self._shape)
        attention_BKS = self._attention.attention_NS.view(*self._shape, -1)
        self.history.add(self._utterance_B, parent_BK, label_BK, confidence_BK, attention_BKS)
        if isinstance(self._coverage_BKS, Tensor):
            self._coverage_BKS = self._coverage_BKS.flatten(0, 1)[rows_N].view_as(self._coverage_BKS)
        for evidence in (self._attention, self._ctc, self._words):
            if evidence is not None:
                evidence.advance(rows_N, labels_N)

    def _is_settled(self, step: int) -> Tensor:
        """Whether what goes on is too late: even if all further labels were certain, it would not enter the list."""
        rules, remaining_B = self._rules, self._limit_B - step
        hope_B = self._score_BK.amax(1) + rules.most_per_label * remaining_B
        longest_B, shortest = self._limit_B + 1, step + 2
        length_B = torch.where(hope_B < 0, longest_B, torch.full_like(longest_B, shortest))
        hope_B = hope_B / length_B**rules.length_power + max(0.0, rules.coverage_weight) * self._frames_B
        return (hope_B <= self.ended.score_BK[self._utterance_B, rules.n_best - 1]) | (remaining_B <= 0)

    def _leave_out(self, settled_B: Tensor) -> None:
        """Go on with the other utterances."""
        kept_B = (~settled_B).nonzero()[:, 0]
        rows_N = self._rows(kept_B, torch.arange(self._rules.beam_size, device=self._device))
        self._shape = len(kept_B), self._rules.beam_size
        self._place_B = self._place_B[: len(kept_B)]
        self._utterance_B, self._limit_B = self._utterance_B[kept_B], self._limit_B[kept_B]
        self._frames_B, self._score_BK = self._frames_B[kept_B], self._score_BK[kept_B]
        if isinstance(self._coverage_BKS, Tensor):
            self._coverage_BKS = self._coverage_BKS[kept_B]
        for evidence in (self._attention, self._ctc, self._words):
            if evidence is not None:
                evidence.keep(rows_N)

    def _rows(self, place_B: Tensor, beams: Tensor) -> Tensor:
        """rows_N of these beams of the utterances at these places."""
        return (place_B[:, None] * self._rules.beam_size + beams).flatten()

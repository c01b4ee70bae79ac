"""Beam search for attention models, alone or with the CTC output, a language model and hot words.

All beams of all utterances advance together. Shape suffixes: B utterances that the search continues with, K beams of
each, V labels, S encoded frames, U label positions, N = B * K rows in the order of utterances.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from sonosco_like.decoding.decoder import (
    Decoder,
    Vocabulary,
    attention_decoder_of,
    attention_spans,
    ctc_log_probs,
    hypothesis_of,
    label_limits,
    require_positive,
)
from sonosco_like.decoding.scorers import (
    IMPOSSIBLE,
    AttentionScorer,
    CTCPrefixScorer,
    CTCScorer,
    RowsWordScorer,
    WordScores,
)
from sonosco_like.errors import UsageError
from sonosco_like.models.recogniser import SpeechModel
from sonosco_like.records import BLANK, END, START, Hypothesis, Output
from sonosco_like.serialization import serializable

_LEAVE_OUT_SHARE = 0.25  # of utterances that are settled: to continue without them costs copies


@serializable
class AttentionBeamDecoder(Decoder):
    """Finds the text with the highest score

        ((1 - ctc_weight) log p_attention + ctc_weight log p_ctc + words) / length ** length_power
            + coverage_weight * number of frames whose attention weights sum to more than coverage_threshold,

    where the length counts END. Length normalisation as in LAS (Chan et al. 2015), coverage after Chorowski & Jaitly
    (2016), CTC prefix scores after Watanabe et al. (2017). With `end_threshold` g (Hannun et al. 2019: 1.5) END is only
    allowed where log p(END) > g * log p(best other label). A text has at most `max_length_ratio` labels per encoded
    frame. CTC scores the `ctc_candidates` labels per step that are most probable without it.
    """

    beam_size: int = 8
    n_best: int = 1
    length_power: float = 1.0
    coverage_weight: float = 0.0
    coverage_threshold: float = 0.5
    end_threshold: float | None = None
    max_length_ratio: float = 1.0
    ctc_weight: float = 0.0
    ctc_candidates: int = 40
    words: WordScores = field(default_factory=WordScores)

    def __post_init__(self) -> None:
        require_positive(
            beam_size=self.beam_size,
            n_best=self.n_best,
            max_length_ratio=self.max_length_ratio,
            ctc_candidates=self.ctc_candidates,
        )
        if not 0.0 <= self.ctc_weight <= 1.0:
            raise UsageError(f"`ctc_weight` must be between 0 and 1, got {self.ctc_weight}.")
        if self.length_power < 0.0:
            raise UsageError(f"`length_power` must not be below 0, got {self.length_power}.")
        if self.n_best > self.beam_size:
            raise UsageError(f"`n_best` is {self.n_best}, but a beam of {self.beam_size} keeps no more than that many.")

    @torch.no_grad()
    def decode(
        self,
        output: Output,
        vocabulary: Vocabulary,
        *,
        model: SpeechModel | None = None,
        frame_seconds: float = 1.0,
    ) -> list[list[Hypothesis]]:
        """Up to `n_best` hypotheses of each utterance; a token's time is where attention was when it was written."""
        search = self._search(output, vocabulary, model)
        search.run()
        history, finished = search.history.on_host(), search.finished
        scores_BK, steps_BK, rows_BK = (
            each.tolist() for each in (finished.score_BK, finished.step_BK, finished.row_BK)
        )
        decoded = []
        for utterance, found in enumerate(zip(scores_BK, steps_BK, rows_BK, strict=True)):
            hypotheses: list[Hypothesis] = []
            for score, step, row in list(zip(*found, strict=True))[: self.n_best]:
                if score == -torch.inf and hypotheses:
                    break
                labels, confidences, attention_US = history.trace(utterance, step, row)
                spans = attention_spans(attention_US.numpy(), labels, confidences)
                hypotheses.append(hypothesis_of(spans, score, vocabulary, frame_seconds))
            decoded.append(hypotheses)
        return decoded

    def _search(self, output: Output, vocabulary: Vocabulary, model: SpeechModel | None) -> _Search:
        lengths_B = output.encoded_lengths_B
        utterance_N = torch.arange(len(lengths_B), device=lengths_B.device).repeat_interleave(self.beam_size)
        words = self.words.scorer(vocabulary.symbols)
        return _Search(
            self,
            lengths_B,
            AttentionScorer(attention_decoder_of(model), output, utterance_N),
            self._ctc_scorer(output, utterance_N) if self.ctc_weight else None,
            RowsWordScorer(words, len(utterance_N)) if words else None,
        )

    def _ctc_scorer(self, output: Output, utterance_N: Tensor) -> CTCScorer:
        scorer = CTCPrefixScorer(ctc_log_probs(output), output.encoded_lengths_B, utterance_N)
        return CTCScorer(scorer, max(self.ctc_candidates, self.beam_size))


class _Search:
    """One search with the settings of a decoder; `run` is called once."""

    def __init__(
        self,
        settings: AttentionBeamDecoder,
        frames_B: Tensor,
        attention: AttentionScorer,
        ctc: CTCScorer | None = None,
        words: RowsWordScorer | None = None,
    ) -> None:
        self._settings, self._frames_B = settings, frames_B
        self._limit_B = label_limits(frames_B, settings.max_length_ratio)
        self._attention, self._ctc, self._words = attention, ctc, words
        self._device, utterances = frames_B.device, len(frames_B)
        self._shape = utterances, settings.beam_size
        self._utterance_B = self._place_B = torch.arange(utterances, device=self._device)
        self._score_BK = torch.full(self._shape, -torch.inf, device=self._device)
        self._score_BK[:, 0] = 0.0  # all beams begin equal, so one of them is enough
        self._coverage_BKS: Tensor | float = 0.0
        self.finished = _Finished.none(*self._shape, self._device)
        self.history = _History(utterances)

    def run(self) -> None:
        """Search until no running hypothesis can become one of the `n_best`."""
        for step in range(int(self._limit_B.max()) + 1):
            log_probs_NV = self._attention.scores()
            total_BKV = self._score_BK[..., None] + self._label_scores(log_probs_NV, step).view(*self._shape, -1)
            self._finish(total_BKV[..., END], step)
            self._extend(total_BKV, log_probs_NV)
            settled_B = self._is_settled(step)
            settled = int(settled_B.sum())
            if settled == len(settled_B):
                return
            if settled >= _LEAVE_OUT_SHARE * len(settled_B):
                self._leave_out(settled_B)

    def _label_scores(self, log_probs_NV: Tensor, step: int) -> Tensor:
        """What every label adds to the score of every row; -inf for labels that are forbidden."""
        share, forbidden_NV = self._settings.ctc_weight, self._forbidden(log_probs_NV, step)
        words_NV = self._words.scores(log_probs_NV) if self._words is not None else torch.zeros_like(log_probs_NV)
        scores_NV = (1.0 - share) * log_probs_NV.clamp(min=IMPOSSIBLE) + words_NV
        if self._ctc is not None:
            promising_NV = (log_probs_NV + words_NV).masked_fill(forbidden_NV, -torch.inf)
            scores_NV = scores_NV + share * self._ctc.scores(promising_NV)
        return scores_NV.masked_fill(forbidden_NV, -torch.inf)

    def _forbidden(self, log_probs_NV: Tensor, step: int) -> Tensor:
        """Which labels may not follow: at the limit all but END, before it an END that is not likely enough."""
        impossible_NV = log_probs_NV == -torch.inf
        at_limit_N = (step >= self._limit_B).repeat_interleave(self._settings.beam_size)
        forbidden_NV = impossible_NV | at_limit_N[:, None]
        forbidden_NV[:, [BLANK, START]] = True
        forbidden_NV[:, END] = impossible_NV[:, END]
        if self._settings.end_threshold is not None:
            best_other_N = log_probs_NV[:, END + 1 :].amax(1)
            unlikely_N = log_probs_NV[:, END] <= self._settings.end_threshold * best_other_N
            forbidden_NV[:, END] |= unlikely_N & ~at_limit_N
        return forbidden_NV

    def _finish(self, total_BK: Tensor, step: int) -> None:
        """Let every row write END, and keep the best of these hypotheses."""
        score_BK = total_BK / (step + 1) ** self._settings.length_power
        if self._settings.coverage_weight:
            self._coverage_BKS = self._coverage_BKS + self._attention.attention_NS.view(*self._shape, -1)
            covered_BK = (self._coverage_BKS > self._settings.coverage_threshold).sum(-1)
            score_BK = score_BK + self._settings.coverage_weight * covered_BK
        self.finished.add(self._utterance_B, score_BK, step)

    def _extend(self, total_BKV: Tensor, log_probs_NV: Tensor) -> None:
        """Choose the best labels over all beams of each utterance, and advance all scorers."""
        labels = total_BKV.shape[-1]
        total_BKV[..., END] = -torch.inf
        self._score_BK, place_BK = total_BKV.flatten(1).topk(self._settings.beam_size)
        parent_BK, label_BK = place_BK // labels, place_BK % labels
        rows_N, labels_N = self._rows(self._place_B, parent_BK), label_BK.flatten()
        confidence_BK = log_probs_NV[rows_N, labels_N].view(self._shape)
        attention_BKS = self._attention.attention_NS.view(*self._shape, -1)
        self.history.add(self._utterance_B, parent_BK, label_BK, confidence_BK, attention_BKS)
        if isinstance(self._coverage_BKS, Tensor):
            self._coverage_BKS = self._coverage_BKS.flatten(0, 1)[rows_N].view_as(self._coverage_BKS)
        for scorer in (self._attention, self._ctc, self._words):
            if scorer is not None:
                scorer.advance(rows_N, labels_N)

    def _is_settled(self, step: int) -> Tensor:
        """Whether the running hypotheses are too bad: even with certain labels from here, none would be kept."""
        settings, remaining_B = self._settings, self._limit_B - step
        bound_B = self._score_BK.amax(1) + settings.words.most_per_word * remaining_B
        longest_B, shortest = self._limit_B + 1, step + 2
        length_B = torch.where(bound_B < 0, longest_B, torch.full_like(longest_B, shortest))
        bound_B = bound_B / length_B**settings.length_power + max(0.0, settings.coverage_weight) * self._frames_B
        return (bound_B <= self.finished.score_BK[self._utterance_B, settings.n_best - 1]) | (remaining_B <= 0)

    def _leave_out(self, settled_B: Tensor) -> None:
        """Continue with the other utterances."""
        kept_B = (~settled_B).nonzero()[:, 0]
        rows_N = self._rows(kept_B, torch.arange(self._settings.beam_size, device=self._device))
        self._shape = len(kept_B), self._settings.beam_size
        self._place_B = self._place_B[: len(kept_B)]
        self._utterance_B, self._limit_B = self._utterance_B[kept_B], self._limit_B[kept_B]
        self._frames_B, self._score_BK = self._frames_B[kept_B], self._score_BK[kept_B]
        if isinstance(self._coverage_BKS, Tensor):
            self._coverage_BKS = self._coverage_BKS[kept_B]
        for scorer in (self._attention, self._ctc, self._words):
            if scorer is not None:
                scorer.keep(rows_N)

    def _rows(self, place_B: Tensor, beams: Tensor) -> Tensor:
        """rows_N of these beams of the utterances at these places."""
        return (place_B[:, None] * self._settings.beam_size + beams).flatten()


@dataclass
class _Finished:
    """The best finished hypotheses of each utterance so far: score, and the step and row in which END was written."""

    score_BK: Tensor
    step_BK: Tensor
    row_BK: Tensor

    @classmethod
    def none(cls, utterances: int, beams: int, device: torch.device) -> _Finished:
        """Before the first step."""
        zeros_BK = torch.zeros(utterances, beams, dtype=torch.int64, device=device)
        return cls(torch.full((utterances, beams), -torch.inf, device=device), zeros_BK, zeros_BK.clone())

    def add(self, utterance_B: Tensor, score_BK: Tensor, step: int) -> None:
        """Finish every row of a step, and keep the best of these utterances; of equal ones the shortest."""
        beams = score_BK.shape[1]
        rows_BK = torch.arange(beams, device=score_BK.device).expand_as(score_BK)
        scores = torch.cat([self.score_BK[utterance_B], score_BK], 1)
        order = scores.argsort(dim=1, descending=True, stable=True)[:, :beams]
        steps = torch.cat([self.step_BK[utterance_B], torch.full_like(rows_BK, step)], 1)
        rows = torch.cat([self.row_BK[utterance_B], rows_BK], 1)
        self.score_BK[utterance_B] = scores.gather(1, order)
        self.step_BK[utterance_B] = steps.gather(1, order)
        self.row_BK[utterance_B] = rows.gather(1, order)


@dataclass
class _History:
    """The choices of each step; kept on the device, and traced back only for the hypotheses that are returned.

    ```
    parents      BK   the row of the step that each beam continues
    labels       BK   the label it continues with
    confidences  BK   the attention decoder's log p of the label
    attentions   BKS  of the rows of the step
    ```
    """

    utterances: int
    parents: list[Tensor] = field(default_factory=list)
    labels: list[Tensor] = field(default_factory=list)
    confidences: list[Tensor] = field(default_factory=list)
    attentions: list[Tensor] = field(default_factory=list)

    def add(
        self, utterance_B: Tensor, parent_BK: Tensor, label_BK: Tensor, confidence_BK: Tensor, attention_BKS: Tensor
    ) -> None:
        """Record one step of these utterances."""
        parts = ((self.parents, parent_BK), (self.labels, label_BK), (self.confidences, confidence_BK))
        for steps, part_BKx in (*parts, (self.attentions, attention_BKS)):
            steps.append(self._fill_left_out(utterance_B, part_BKx))

    def on_host(self) -> _History:
        """The same with everything but the attention copied to the host."""
        parts = (_to_host(self.parents), _to_host(self.labels), _to_host(self.confidences))
        return _History(self.utterances, *parts, attentions=self.attentions)

    def trace(self, utterance: int, step: int, row: int) -> tuple[list[int], list[float], Tensor]:
        """(labels, their confidences, attention_US) of the hypothesis that was finished in a row of a step."""
        labels, confidences, attentions = [], [], []
        for earlier in range(step - 1, -1, -1):
            labels.append(int(self.labels[earlier][utterance, row]))
            confidences.append(float(self.confidences[earlier][utterance, row].exp()))
            row = int(self.parents[earlier][utterance, row])
            attentions.append(self.attentions[earlier][utterance, row])
        attention_US = torch.stack(attentions[::-1]).cpu() if attentions else torch.empty(0, 0)
        return labels[::-1], confidences[::-1], attention_US

    def _fill_left_out(self, utterance_B: Tensor, part_BKx: Tensor) -> Tensor:
        """The part with zeros for the utterances that the search has left out."""
        if len(utterance_B) == self.utterances:
            return part_BKx
        all_BKx = part_BKx.new_zeros(self.utterances, *part_BKx.shape[1:])
        all_BKx[utterance_B] = part_BKx
        return all_BKx


def _to_host(steps: list[Tensor]) -> list[Tensor]:
    """The tensors on the host, in one copy."""
    return list(torch.stack(steps).cpu()) if steps else []

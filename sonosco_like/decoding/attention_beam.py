"""Beam search for attention models, alone or with the CTC output, a language model and hot words."""

from __future__ import annotations

from dataclasses import field

import torch
from torch import Tensor

from sonosco_like.decoding.attention_search import AttentionBeamSearch, SearchRules
from sonosco_like.decoding.ctc_prefix_score import CTCPrefixScorer
from sonosco_like.decoding.decoder import (
    Decoder,
    Vocabulary,
    attention_decoder_of,
    ctc_log_probs,
    most_labels,
    require_positive,
)
from sonosco_like.decoding.evidence import AttentionEvidence, CTCEvidence, WordEvidence
from sonosco_like.decoding.timing import attention_spans, hypothesis_of
from sonosco_like.decoding.word_scores import WordScores
from sonosco_like.errors import UsageError
from sonosco_like.models.interfaces import SpeechModel
from sonosco_like.records import Hypothesis, Output
from sonosco_like.serialization import serializable


@serializable
class AttentionBeamDecoder(Decoder):
    """Finds the text with the highest score

        ((1 - ctc_weight) log p_attention + ctc_weight log p_ctc + words) / length ** length_power
            + coverage_weight * frames that were attended to by more than coverage_threshold in all,

    where the length counts END. Length normalisation as in LAS (Chan et al. 2015), coverage after Chorowski & Jaitly
    (2016), CTC prefix scores after Watanabe et al. (2017). With `end_threshold` g (Hannun et al. 2019: 1.5) END may
    only be said where log p(END) > g * log p(best other label). A text has at most `max_length_ratio` labels per
    encoded frame. CTC judges the `ctc_candidates` labels per step that are most probable without it.
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
        """Up to `n_best` readings of each utterance; times are where attention was when a token was written."""
        search = self._search(output, vocabulary, model)
        search.run()
        history, ended = search.history.on_host(), search.ended
        scores_BK, steps_BK, rows_BK = (each.tolist() for each in (ended.score_BK, ended.step_BK, ended.row_BK))
        decoded = []
        for utterance, found in enumerate(zip(scores_BK, steps_BK, rows_BK, strict=True)):
            readings: list[Hypothesis] = []
            for score, step, row in list(zip(*found, strict=True))[: self.n_best]:
                if score == -torch.inf and readings:
                    break
                labels, confidences, attention_US = history.follow(utterance, step, row)
                spans = attention_spans(attention_US.numpy(), labels, confidences)
                readings.append(hypothesis_of(spans, score, vocabulary, frame_seconds))
            decoded.append(readings)
        return decoded

    def _search(self, output: Output, vocabulary: Vocabulary, model: SpeechModel | None) -> AttentionBeamSearch:
        lengths_B = output.encoded_lengths_B
        utterance_N = torch.arange(len(lengths_B), device=lengths_B.device).repeat_interleave(self.beam_size)
        scorer = self.words.scorer(vocabulary.symbols)
        return AttentionBeamSearch(
            self._rules(),
            most_labels(lengths_B, self.max_length_ratio),
            lengths_B,
            AttentionEvidence(attention_decoder_of(model), output, utterance_N),
            self._ctc_evidence(output, utterance_N) if self.ctc_weight else None,
            WordEvidence(scorer, len(utterance_N)) if scorer else None,
        )

    def _ctc_evidence(self, output: Output, utterance_N: Tensor) -> CTCEvidence:
        scorer = CTCPrefixScorer(ctc_log_probs(output), output.encoded_lengths_B, utterance_N)
        return CTCEvidence(scorer, max(self.ctc_candidates, self.beam_size))

    def _rules(self) -> SearchRules:
        return SearchRules(
            beam_size=self.beam_size,
            n_best=self.n_best,
            length_power=self.length_power,
            coverage_weight=self.coverage_weight,
            coverage_threshold=self.coverage_threshold,
            end_threshold=self.end_threshold,
            ctc_weight=self.ctc_weight,
            most_per_label=self.words.most_per_word,
        )

"""The prefix beam search of flashlight-text, another implementation of ours, as a judge."""

from __future__ import annotations

import numpy as np
import pytest

from sonosco_like.decoding.ctc_beam import CTCPath
from sonosco_like.records import BLANK

flashlight = pytest.importorskip("flashlight.lib.text.decoder")


def flashlight_beam_search(log_probs_SV, beam_size, threshold=50.0, n_best=1, lm=None):
    """As `prefix_beam_search`, for one utterance: the same paths and scores, unless scores are equal."""
    # Labels that are never possible need no search; sorted, so that BLANK stays the first.
    possible = np.union1d([BLANK], np.flatnonzero(log_probs_SV.max(axis=0, initial=-np.inf) > -np.inf))
    if lm is not None:  # which knows labels by their number
        possible = np.arange(log_probs_SV.shape[1])
    emissions_SV = np.ascontiguousarray(log_probs_SV[:, possible], np.float32)
    frames, labels = emissions_SV.shape
    options = flashlight.LexiconFreeDecoderOptions(
        beam_size=beam_size,
        beam_size_token=labels,
        beam_threshold=threshold,
        lm_weight=0.0 if lm is None else 1.0,
        sil_score=0.0,
        log_add=True,
        criterion_type=flashlight.CriterionType.CTC,
    )
    # Its silence is the label it assumes before the first frame; with BLANK there, no label is taken for a repeat.
    search = flashlight.LexiconFreeDecoder(options, lm or flashlight.ZeroLM(), BLANK, BLANK, [])
    results = search.decode(emissions_SV.ctypes.data, frames, labels)
    return [CTCPath(result.score, possible[result.tokens[1:-1]]) for result in results[:n_best]]


class WordsInFlashlight(flashlight.LM):
    """Our word scores, which its search asks label by label."""

    def __init__(self, scorer):
        super().__init__()
        self.scorer, self.states, self.kept = scorer, {}, []

    def start(self, start_with_nothing):
        return self.keep(flashlight.LMState(), self.scorer.start())

    def score(self, state, label):
        before = self.states[state]
        after = self.keep(state.child(label), self.scorer.extend(before, label))
        return after, self.scorer.next_scores(before)[label]

    def finish(self, state):
        return state, self.scorer.finish(self.states[state])

    def keep(self, state, word_state):
        self.states.setdefault(state, word_state)
        self.kept.append(state)
        return state

"""Other settings for the decoder of a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sonosco_like.decoding import (
    AttentionBeamDecoder,
    CTCBeamDecoder,
    GreedyAttentionDecoder,
    GreedyCTCDecoder,
    WordScores,
)
from sonosco_like.errors import UsageError
from sonosco_like.inference import DecoderSettings

BOTH = SimpleNamespace(has_ctc=True, attention_decoder=object())
ONLY_CTC = SimpleNamespace(has_ctc=True, attention_decoder=None)


def test_without_settings_the_decoder_stays():
    decoder = GreedyCTCDecoder()
    assert DecoderSettings().apply(decoder, ONLY_CTC) is decoder


def test_a_greedy_decoder_becomes_a_beam_search_of_its_kind():
    assert DecoderSettings(beam=4).apply(GreedyCTCDecoder(), ONLY_CTC).beam_size == 4
    assert isinstance(DecoderSettings(ctc_weight=0.3).apply(GreedyAttentionDecoder(), BOTH), AttentionBeamDecoder)


def test_a_beam_search_keeps_what_is_not_changed():
    decoder = CTCBeamDecoder(beam_size=9, words=WordScores(word_bonus=2.0))
    changed = DecoderSettings(hot_words=("yes",)).apply(decoder, ONLY_CTC)
    assert (changed.beam_size, changed.words.word_bonus, changed.words.hot_words) == (9, 2.0, ["yes"])
    assert decoder.words.hot_words == []


def test_more_hypotheses_than_the_beam_is_wide_widen_it():
    assert DecoderSettings(n_best=30).apply(GreedyCTCDecoder(), ONLY_CTC).beam_size == 30


def test_the_kind_chooses_an_output():
    assert isinstance(DecoderSettings(kind="ctc").apply(GreedyAttentionDecoder(), BOTH), GreedyCTCDecoder)
    assert isinstance(DecoderSettings(kind="attention", beam=2).apply(GreedyCTCDecoder(), BOTH), AttentionBeamDecoder)
    with pytest.raises(UsageError, match="has no attention decoder"):
        DecoderSettings(kind="attention").apply(GreedyCTCDecoder(), ONLY_CTC)


def test_a_setting_that_a_decoder_does_not_have_is_refused():
    with pytest.raises(UsageError, match="CTCBeamDecoder has no setting `ctc_weight`"):
        DecoderSettings(ctc_weight=0.5).apply(GreedyCTCDecoder(), ONLY_CTC)


def test_a_language_model_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="There is no language model at"):
        DecoderSettings(language_model=tmp_path / "no.arpa").apply(GreedyCTCDecoder(), ONLY_CTC)

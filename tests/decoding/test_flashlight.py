"""Our CTC beam search against that of flashlight-text, which shares nothing with it but the definition."""

from __future__ import annotations

import numpy as np
import pytest
from brute_force import Letters, collapse, ctc_output, every_ctc_text, posteriors, random_log_probs
from flashlight_judge import WordsInFlashlight, flashlight_beam_search
from hypothesis import given, settings
from hypothesis import strategies as st

from sonosco_like.decoding import CTCBeamDecoder, WordScores
from sonosco_like.decoding.ctc_beam import prefix_beam_search
from sonosco_like.records import END, START

VOCABULARY = Letters("ab ")
WIDE = 10_000


def own_search(log_probs_SV, beam_size, **options):
    [paths] = prefix_beam_search(log_probs_SV[None], np.array([len(log_probs_SV)]), beam_size, **options)
    return paths


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(2, 4), st.integers(0, 10_000), st.sampled_from([0.5, 2.0, 6.0]))
def test_the_judge_itself_finds_every_text_with_its_exact_probability(frames, labels, seed, sharpness):
    log_probs_SV = random_log_probs(frames, labels, seed, sharpness)
    found = flashlight_beam_search(log_probs_SV, WIDE, threshold=1000.0, n_best=WIDE)
    expected = every_ctc_text(log_probs_SV)
    assert len(found) == len(expected)
    for path in found:
        assert path.score == pytest.approx(expected[collapse(path.path_S)], abs=1e-5)


@settings(max_examples=60)
@given(
    frames=st.integers(1, 40),
    labels=st.integers(2, 12),
    seed=st.integers(0, 10_000),
    sharpness=st.sampled_from([1.0, 3.0, 8.0]),
    beam_size=st.integers(1, 20),
)
def test_both_give_the_same_scores_and_paths(frames, labels, seed, sharpness, beam_size):
    log_probs_SV = random_log_probs(frames, labels, seed, sharpness)
    own = own_search(log_probs_SV, beam_size, n_best=5)
    other = flashlight_beam_search(log_probs_SV, beam_size, n_best=5)
    assert [path.score for path in own] == pytest.approx([path.score for path in other], rel=1e-9)
    assert [path.path_S.tolist() for path in own] == [path.path_S.tolist() for path in other]


@pytest.mark.parametrize(("seed", "beam_size", "sharpness"), [(6, 3, 2.0), (113, 4, 1.0), (198, 4, 1.0), (240, 3, 1.0)])
def test_a_prefix_that_comes_back_into_the_beam_is_known_again(seed, beam_size, sharpness):
    """Found by trying: a prefix is dropped while a longer one stays, returns, and leads to the longer one again."""
    log_probs_SV = random_log_probs(14, 4, seed, sharpness)
    own = own_search(log_probs_SV, beam_size, n_best=5)
    other = flashlight_beam_search(log_probs_SV, beam_size, n_best=5)
    assert [path.score for path in own] == pytest.approx([path.score for path in other], rel=1e-9)


@settings(max_examples=20)
@given(frames=st.integers(1, 30), seed=st.integers(0, 10_000), beam_size=st.integers(1, 12))
def test_words_score_as_a_language_model_inside_flashlight(language_model, frames, seed, beam_size):
    """Its search asks our scorer label by label: another implementation of everything but the scorer."""
    words = WordScores(language_model=language_model, word_bonus=0.4, hot_words=["ab"], hot_word_bonus=2.0)
    log_probs_SV = posteriors(frames, VOCABULARY, seed)
    [[found]] = CTCBeamDecoder(beam_size=beam_size, words=words).decode(ctc_output([log_probs_SV]), VOCABULARY)
    emissions_SV = np.array(log_probs_SV, np.float32)
    emissions_SV[:, [START, END]] = -np.inf
    lm = WordsInFlashlight(words.scorer(VOCABULARY.symbols))
    [expected] = flashlight_beam_search(emissions_SV, beam_size, lm=lm)
    assert found.score == pytest.approx(expected.score, abs=1e-3)
    assert found.labels == collapse(expected.path_S)

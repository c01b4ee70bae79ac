import math

import numpy as np
import pytest
import torch
from brute_force import Letters, collapse, ctc_output, random_log_probs, saying
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.errors import UsageError
from sonosco_like.records import END, START, Output
from sonosco_like.serialization import dumps, loads

VOCABULARY = Letters()


def decode_one(log_probs_SV, **options):
    return GreedyCTCDecoder().decode(ctc_output([log_probs_SV]), VOCABULARY, **options)[0][0]


def test_repeats_are_joined_and_blanks_part_them():
    assert decode_one(saying(VOCABULARY, "__aa_a_bb__")).text == "aab"


@given(st.lists(st.text("ab _", min_size=1, max_size=9), min_size=1, max_size=5))
def test_a_batch_is_decoded_like_each_utterance_alone(frames):
    together = GreedyCTCDecoder().decode(ctc_output([saying(VOCABULARY, each) for each in frames]), VOCABULARY)
    for each, [hypothesis] in zip(frames, together, strict=True):
        alone = decode_one(saying(VOCABULARY, each))
        assert (hypothesis.labels, hypothesis.tokens, hypothesis.words) == (alone.labels, alone.tokens, alone.words)
        assert hypothesis.score == pytest.approx(alone.score, rel=1e-5)


@given(st.integers(1, 8), st.integers(0, 1000))
def test_labels_and_score_are_those_of_the_best_path(frames, seed):
    log_probs_SV = random_log_probs(frames, len(VOCABULARY.symbols), seed)
    allowed_SV = log_probs_SV.copy()
    allowed_SV[:, [START, END]] = -np.inf
    hypothesis = decode_one(log_probs_SV)
    assert hypothesis.labels == collapse(allowed_SV.argmax(1))
    assert hypothesis.score == pytest.approx(float(allowed_SV.max(1).sum()), rel=1e-4)


def test_token_times_are_the_frames_in_which_they_were_heard():
    hypothesis = decode_one(saying(VOCABULARY, "_aa_b__ a"), frame_seconds=0.5)
    assert [(t.text, t.start, t.end) for t in hypothesis.tokens] == [
        ("a", 0.5, 1.5),
        ("b", 2.0, 2.5),
        (" ", 3.5, 4.0),
        ("a", 4.0, 4.5),
    ]
    assert [(w.text, w.start, w.end) for w in hypothesis.words] == [("ab", 0.5, 2.5), ("a", 4.0, 4.5)]


def test_confidence_is_the_peak_of_a_token_and_the_geometric_mean_of_a_word():
    log_probs_SV = np.concatenate(
        [saying(VOCABULARY, "a", 0.6), saying(VOCABULARY, "a", 0.9), saying(VOCABULARY, "b", 0.4)]
    )
    hypothesis = decode_one(log_probs_SV)
    assert [t.confidence for t in hypothesis.tokens] == pytest.approx([0.9, 0.4])
    assert hypothesis.words[0].confidence == pytest.approx(math.sqrt(0.9 * 0.4))


def test_all_blank_is_an_empty_text():
    hypothesis = decode_one(saying(VOCABULARY, "____"))
    assert (hypothesis.text, hypothesis.labels, hypothesis.tokens, hypothesis.words) == ("", (), (), ())


def test_start_and_end_are_never_heard():
    log_probs_SV = np.full((2, len(VOCABULARY.symbols)), -10.0, np.float32)
    log_probs_SV[:, START], log_probs_SV[:, 4] = 0.0, -1.0
    assert decode_one(log_probs_SV).text == "a"


def test_the_models_output_is_left_as_it_is():
    output = ctc_output([saying(VOCABULARY, "ab")])
    before = output.ctc_logits_BSV.clone()
    GreedyCTCDecoder().decode(output, VOCABULARY)
    assert torch.equal(output.ctc_logits_BSV, before)


def test_texts_are_those_of_the_best_hypotheses():
    output = ctc_output([saying(VOCABULARY, "ab"), saying(VOCABULARY, "_")])
    assert GreedyCTCDecoder().texts(output, VOCABULARY) == ["ab", ""]


def test_a_model_without_ctc_is_refused_with_a_remedy():
    with pytest.raises(UsageError, match="AttentionBeamDecoder"):
        GreedyCTCDecoder().decode(Output(torch.zeros(1, 1, 1), torch.ones(1)), VOCABULARY)


def test_survives_yaml():
    assert isinstance(loads(dumps(GreedyCTCDecoder()), GreedyCTCDecoder), GreedyCTCDecoder)

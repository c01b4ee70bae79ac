import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sonosco_like.decoding.decoder import attention_spans, word_part_of, words_of_tokens
from sonosco_like.records import Token


def tokens_of(*symbols):
    return [Token(symbol, float(i), i + 1.0, 1.0) for i, symbol in enumerate(symbols)]


@pytest.mark.parametrize(
    ("symbols", "words"),
    [
        ((), []),
        (("a", "b", " ", "c"), [("ab", 0, 2), ("c", 3, 4)]),
        ((" ", "a", " ", " ", "b", " "), [("a", 1, 2), ("b", 4, 5)]),
        (("▁he", "llo", "▁you"), [("hello", 0, 2), ("you", 2, 3)]),
        (("▁", "a", "▁b"), [("a", 1, 2), ("b", 2, 3)]),
        (("a", "<unk>", " ", "b"), [("a⁇", 0, 2), ("b", 3, 4)]),
    ],
)
def test_words_run_from_their_first_token_to_their_last(symbols, words):
    assert [(w.text, w.start, w.end) for w in words_of_tokens(tokens_of(*symbols))] == words


def test_special_symbols_are_no_letters():
    assert word_part_of("<blank>") == word_part_of("<s>") == word_part_of("</s>") == ("", False)


def weight_of(frames, attention_US):
    return sum(np.log(attention_US[u, s] + 1e-10) for u, s in enumerate(frames))


@given(arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.floats(0, 1, width=32)))
def test_attention_times_are_the_best_that_never_go_back(attention_US):
    labels = list(range(len(attention_US)))
    spans = attention_spans(attention_US, labels, [1.0] * len(labels))
    frames = [span.first for span in spans]
    assert frames == sorted(frames)
    ways = itertools.combinations_with_replacement(range(attention_US.shape[1]), len(labels))
    assert weight_of(frames, attention_US) == pytest.approx(max(weight_of(way, attention_US) for way in ways))


def test_one_stray_glance_does_not_shift_the_rest():
    attention_US = np.eye(5, dtype=np.float32) * 0.9 + 0.02
    attention_US[1] = [0.0, 0.4, 0.0, 0.0, 0.6]
    assert [span.first for span in attention_spans(attention_US, [4] * 5, [1.0] * 5)] == [0, 1, 2, 3, 4]

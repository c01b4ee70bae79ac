"""What synthetic speakers say."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.data.corpora.grammar import KINDS, draw_text, grammar, vocabulary
from sonosco_like.errors import UsageError

DIGITS = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}


@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32))
def test_texts_are_lower_case_words_of_the_vocabulary(kind, seed):
    text = draw_text(kind, np.random.default_rng(seed))
    assert re.fullmatch(r"[a-z]+( [a-z]+)*", text)
    assert set(text.split()) <= vocabulary(kind)


@given(seed=st.integers(0, 2**32))
def test_digits_are_three_to_seven(seed):
    words = draw_text("digits", np.random.default_rng(seed)).split()
    assert 3 <= len(words) <= 7
    assert set(words) <= DIGITS


def test_the_vocabularies_are_small_larger_and_a_few_hundred_words():
    assert vocabulary("digits") == DIGITS
    assert 100 < len(vocabulary("commands")) < 250
    assert 250 < len(vocabulary("sentences")) < 1000


@pytest.mark.parametrize("kind", KINDS)
def test_every_symbol_is_defined_and_reached(kind):
    rules = grammar(kind)
    used = {symbol for texts in rules.values() for text in texts for symbol in re.findall(r"\{(\w+)\}", text)}
    assert used | {"start"} == set(rules)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_hardly_repeat(kind):
    random = np.random.default_rng(0)
    texts = [draw_text(kind, random) for _ in range(500)]
    assert len(set(texts)) > 400


def test_an_unknown_kind_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match="did you mean 'digits'"):
        draw_text("digit", np.random.default_rng(0))

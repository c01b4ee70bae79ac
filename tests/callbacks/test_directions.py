"""Which way is better comes from the metric."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.callbacks.directions import improves, lower_is_better
from sonosco_like.errors import UsageError
from sonosco_like.metrics import (
    Sums,
    character_error_rate,
    metric,
    teacher_forced_word_error_rate,
    token_accuracy,
    word_error_rate,
)

CONTEXT = SimpleNamespace(
    callbacks=[], metrics=[word_error_rate, teacher_forced_word_error_rate, token_accuracy, character_error_rate]
)


@pytest.mark.parametrize(
    ("measure", "lower"),
    [
        ("val_word_error_rate", True),
        ("val_clean_character_error_rate", True),
        ("val_teacher_forced_word_error_rate", True),
        ("token_accuracy", False),
        ("val_token_accuracy", False),
        ("loss", True),
        ("val_loss", True),
        ("gradient_norm", True),
    ],
)
def test_the_metric_declares_the_direction(measure, lower):
    assert lower_is_better(measure, CONTEXT) is lower


@metric(lower_is_better=False, over="utterances")
def rate(judged):
    """More is better, and its name is the end of another's."""
    return Sums(1.0, 1.0)


def test_the_longest_name_that_fits_is_the_metric():
    context = SimpleNamespace(metrics=[rate, word_error_rate], callbacks=[])
    assert lower_is_better("val_word_error_rate", context)
    assert not lower_is_better("val_rate", context)


def test_a_measure_without_a_metric_is_refused_with_a_near_name():
    with pytest.raises(UsageError, match=r"did you mean 'word_error_rate'"):
        lower_is_better("val_word_eror_rate", CONTEXT)
    with pytest.raises(UsageError, match=r"no metric of that name\. It has character_error_rate, "):
        lower_is_better("xyz", CONTEXT)


@given(value=st.floats(-10, 10), than=st.floats(-10, 10), delta=st.floats(0, 3))
def test_up_and_down_are_mirror_images(value, than, delta):
    assert improves(value, than, lower=True, min_delta=delta) == improves(-value, -than, lower=False, min_delta=delta)


def test_an_improvement_is_more_than_min_delta():
    assert not improves(0.5, 1.0, lower=True, min_delta=0.5)
    assert improves(0.49, 1.0, lower=True, min_delta=0.5)
    assert not improves(1.0, 1.0, lower=False)


def test_any_number_improves_on_none_and_on_nan_and_nan_on_nothing():
    assert improves(5.0, None, lower=True)
    assert improves(5.0, math.nan, lower=True)
    assert not improves(math.nan, None, lower=True)

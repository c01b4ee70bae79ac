"""Measures: the names and numbers that people read, and which direction is better."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_speech import speech_trainer

from sonosco_like.callbacks.measures import families_of, format_value, improves, lower_is_better, short_name, tag_of
from sonosco_like.errors import UsageError
from sonosco_like.metrics import (
    Sums,
    character_error_rate,
    metric,
    teacher_forced_word_error_rate,
    token_accuracy,
    word_error_rate,
)

FAMILIES = ["loss", "gradient_norm", "word_error_rate", "teacher_forced_word_error_rate"]


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("loss", "loss/train"),
        ("val_loss", "loss/val"),
        ("val_word_error_rate", "wer/val"),
        ("val_clean_word_error_rate", "wer/val_clean"),
        ("val_teacher_forced_word_error_rate", "teacher_forced_wer/val"),
        ("gradient_norm", "gradient_norm/train"),
        ("learning_rate", "learning_rate"),
        ("report/val/loss", "report/val/loss"),
        ("lossy", "lossy"),
    ],
)
def test_curves_that_belong_together_stand_together(name, tag):
    assert tag_of(name, FAMILIES) == tag


def test_families_are_what_the_trainer_measures():
    assert families_of(speech_trainer()) == ["loss", "gradient_norm", "word_error_rate", "token_accuracy"]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("val_word_error_rate", 0.1234, "12.3 %"),
        ("character_error_rate", 1.0, "100.0 %"),
        ("loss", 0.123456, "0.1235"),
        ("loss", float("nan"), "nan"),
        ("steps", 123456, "123456"),
        ("done", True, "True"),
        ("transcript", "a b", "a b"),
    ],
)
def test_values_are_shown_as_people_read_them(name, value, text):
    assert format_value(name, value) == text


def test_error_rates_have_the_names_of_the_field():
    assert [short_name(name) for name in ("val_word_error_rate", "character_error_rate", "loss")] == [
        "val_wer", "cer", "loss",
    ]  # fmt: skip


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

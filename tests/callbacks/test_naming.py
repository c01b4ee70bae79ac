"""Names and numbers as people see them."""

from __future__ import annotations

import pytest
from tiny_run import make_trainer

from sonosco_like.callbacks.naming import families_of, short_name, shown, tag_of

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
    assert families_of(make_trainer()) == ["loss", "gradient_norm", "word_error_rate", "token_accuracy"]


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
    assert shown(name, value) == text


def test_error_rates_have_the_names_of_the_field():
    assert [short_name(name) for name in ("val_word_error_rate", "character_error_rate", "loss")] == [
        "val_wer", "cer", "loss",
    ]  # fmt: skip

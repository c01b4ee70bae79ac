"""Lengths of training as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.errors import UsageError
from sonosco_like.events import Duration


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("10ep", 10, "ep"),
        ("2000ba", 2000, "ba"),
        ("90min", 5400, "s"),
        ("1.5h", 5400, "s"),
        (" 30 s ", 30, "s"),
        ("2d", 172800, "s"),
        ("0.5dur", 0.5, "dur"),
        ("1dur", 1, "dur"),
    ],
)
def test_durations_are_read(text, value, unit):
    assert Duration.parse(text) == Duration(value, unit)


@pytest.mark.parametrize("text", ["", "10", "ep", "0ep", "-1ep", "1.5ep", "2.5ba", "1.1dur", "0dur", "10 epochs", "0s"])
def test_what_is_no_duration_is_refused_with_the_forms_there_are(text):
    with pytest.raises(UsageError, match="is not a duration"):
        Duration.parse(text)


def test_a_duration_is_reached_by_its_own_unit_only():
    assert Duration.parse("2ep").reached(epochs=2, batches=0, seconds=0)
    assert not Duration.parse("2ep").reached(epochs=1, batches=9, seconds=9, share=1.0)
    assert Duration.parse("3ba").reached(epochs=0, batches=3, seconds=0)
    assert Duration.parse("1min").reached(epochs=0, batches=0, seconds=60)
    assert Duration.parse("0.5dur").reached(epochs=0, batches=0, seconds=0, share=0.5)


@given(value=st.integers(1, 10**12), unit=st.sampled_from(["ep", "ba", "s"]))
def test_text_and_back(value, unit):
    duration = Duration(float(value), unit)
    assert Duration.parse(f"{value}{unit}") == duration
    assert Duration.parse(str(duration)) == duration

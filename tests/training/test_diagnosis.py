"""Why is my word error rate 100 %? Each finding is read off curves and texts, and only off those that mean it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.training.diagnosis import BLANKS_ARE_NORMAL, MOST_FINDINGS, Facts, Point, diagnose

RATE = 0.001
BLANK = [("one two", ""), ("three", "")]
WRONG = [("one two", "six"), ("three", "nine nine")]
RIGHT = [("one two", "one two"), ("three", "three")]


def facts(loss, validation=None, errors=1.0, rates=RATE, examples=WRONG, every=100, **more) -> Facts:
    """The facts of a training with these curves, one value for each validation."""
    count = len(loss)
    validation = validation or loss
    errors, rates = (each if isinstance(each, list) else [each] * count for each in (errors, rates))
    points = [
        Point(every * (number + 1), rates[number],
              {"loss": loss[number], "val_loss": validation[number], "val_word_error_rate": errors[number]})
        for number in range(count)
    ]  # fmt: skip
    return Facts(points, examples=examples, **{"highest_rate": RATE, **more})


def said(*arguments, **more) -> str:
    return "\n".join(diagnose(facts(*arguments, **more)))


def test_blanks_at_the_beginning_are_normal():
    found = said([3.2, 3.0], examples=BLANK)
    assert "only blanks so far: that is normal in the first" in found
    assert "step 200" in found
    assert "Train on" in found


def test_spaces_alone_are_no_text():
    assert "only blanks so far" in said([3.2, 3.0], examples=[("one two", "  "), ("three", " ")])


def test_a_model_that_learns_letters_before_words_is_left_to_learn():
    found = said([3.2, 2.8, 2.4], examples=[("one two", "o t"), ("three", "tre")])
    assert "loss is falling (3.2 to 2.4), so the model is learning" in found
    assert "Train on." in found
    assert "learning:" not in said([3.2, 2.8, 2.4], is_over=True)


def test_blanks_after_thousands_of_steps_are_not_normal():
    found = said([3.2, 3.0, 2.9], examples=BLANK, every=BLANKS_ARE_NORMAL)
    assert "no longer normal" in found
    assert "sonosco check" in found
    assert "Train on" not in found


def test_blanks_are_not_found_if_there_are_words_or_if_the_model_has_learned():
    assert "blanks" not in said([3.2, 3.0], examples=[*BLANK, ("one", "one")])
    assert "blanks" not in said([3.2, 3.0], examples=BLANK, errors=0.4)
    assert "blanks" not in said([3.2, 3.0], examples=[("", "")])


def test_an_attention_model_writes_no_blanks_but_empty_texts():
    found = said([3.2, 3.0], examples=BLANK, has_ctc=False)
    assert "only empty texts" in found
    assert "blanks" not in found


def test_a_rate_of_zero_is_found_first():
    assert said([3.2] * 4, rates=0.0, highest_rate=0.0, examples=BLANK).startswith("The learning rate was 0 all the")


@pytest.mark.parametrize("highest", [RATE, None])
def test_a_rate_that_was_not_zero_is_not_called_so(highest):
    assert "was 0" not in said([3.2] * 4, highest_rate=highest)


def test_a_rate_that_fell_to_nothing_before_anything_was_learned():
    found = said([3.2, 3.0, 2.9, 2.9], rates=[RATE, RATE, RATE / 1000, 0.0])
    assert "had fallen from 0.001 to 1e-06 by step 300, before anything was learned" in found
    assert "`total: 1dur`" in found


def test_a_rate_that_was_gone_before_the_first_validation():
    assert "had fallen from 0.001 to 0 by step 100" in said([3.2, 3.2, 3.2], rates=0.0)


def test_a_rate_that_falls_after_the_learning_is_what_schedules_are_for():
    assert "had fallen" not in said([3.2, 1.0, 0.5], rates=[RATE, RATE, 0.0], errors=[1.0, 0.4, 0.2], examples=RIGHT)


def test_a_warm_up_that_does_not_end():
    found = said([3.2, 3.1, 3.0], rates=[RATE / 1000, RATE / 500, RATE / 300])
    assert "still in its warm-up: 3.3e-06 of 0.001 at step 300" in found
    assert "had fallen" not in found


def test_labels_that_are_too_long_for_the_frames():
    found = said([3.2, 3.1], too_long=0.37)
    assert "left out 37.0 % of the utterances" in found
    assert "word pieces" in found
    assert "left out" not in said([3.2, 3.1], too_long=0.001)


def test_a_loss_that_is_still_falling_at_the_end_goes_on_with_a_command():
    curve = [3.0, 2.5, 2.0, 1.6, 1.2]
    command = "sonosco resume runs/las --set trainer.epochs=20"
    assert said(curve, errors=0.5, is_over=True, go_on=command).endswith(f"Train further: {command}")
    assert "still falling" not in said(curve, errors=0.5, go_on=command), "the training is not over"
    assert "still falling" not in said([3.0, 1.2, 1.2, 1.2, 1.2], errors=0.5, is_over=True)


def test_a_loss_that_falls_is_no_reason_to_go_on_without_a_learning_rate():
    curve, rates = [3.0, 2.5, 2.0, 1.6], [RATE, RATE, RATE, 0.0]
    assert "still falling" not in said(curve, errors=0.5, rates=rates, is_over=True)


def test_learning_by_heart():
    found = said([3.0, 1.0, 0.5, 0.2, 0.1], [3.0, 1.5, 1.2, 1.4, 1.6], errors=0.6)
    assert "validation loss was best at step 300 (1.2, now 1.6)" in found
    assert "by heart" in found
    assert "by heart" not in said([3.0, 1.0, 0.5, 0.2, 0.1], [3.0, 1.5, 1.2, 1.22, 1.21], errors=0.6)
    assert "by heart" not in said([3.0, 3.0, 3.0, 3.0, 3.0], [3.0, 1.5, 1.2, 1.4, 1.6], errors=0.6)


@pytest.mark.parametrize("pair", [("It's me.", "its me"), ("NINE ONE", "nine one"), ("Ärger, heute!", "ärger heute")])
def test_texts_that_differ_only_in_case_or_punctuation(pair):
    found = said([1.0, 0.1], errors=0.97, examples=[pair, pair, *RIGHT])
    assert "differ mostly in case or punctuation" in found
    assert repr(pair[0]) in found
    assert "same `cleaner`" in found


def test_texts_that_differ_in_words_are_not_blamed_on_case():
    assert "case" not in said([1.0, 0.1], examples=[("One two", "six"), ("three", "nine")])
    assert "case" not in said([1.0, 0.1], errors=0.0, examples=RIGHT)


def test_one_text_for_everything():
    found = said([3.0, 2.5], examples=[("one", "six"), ("two", "six")], has_ctc=False)
    assert "writes 'six' for every utterance" in found
    assert "ctc: true" in found
    assert "every utterance" not in said([3.0, 2.5], examples=[("six", "six"), ("six", "six")], errors=0.0)


def test_a_loss_that_explodes():
    assert "grew from 3 to 9" in said([3.0, 5.0, 9.0])
    assert "not a finite number" in said([3.0, float("nan")])


def test_a_loss_that_does_not_move():
    found = said([3.0, 3.01, 2.99])
    assert "hardly moved (3 to 2.99)" in found
    assert "10 times as high as 0.001" in found
    assert "hardly moved" not in said([3.0, 2.5, 2.0])


def test_a_training_that_went_well_needs_no_words():
    well = said([3.0, 1.0, 0.3, 0.2, 0.2, 0.2], errors=[1.0, 0.5, 0.2, 0.1, 0.1, 0.1], examples=RIGHT, is_over=True)
    assert well == ""


numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)
rates = st.one_of(st.none(), st.floats(0, 10))
points = st.builds(
    Point,
    st.integers(0, 10**9),
    rates,
    st.dictionaries(st.sampled_from(["loss", "val_loss", "val_word_error_rate"]), numbers),
)
texts = st.tuples(st.text(max_size=20), st.text(max_size=20))


@given(st.lists(points, max_size=8), st.lists(texts, max_size=5), rates, st.booleans(), st.floats(0, 1))
def test_any_facts_at_all_give_at_most_three_sentences(curve, examples, highest, is_over, too_long):
    made = Facts(curve, examples=examples, highest_rate=highest, is_over=is_over, too_long=too_long)
    found = diagnose(made)
    assert len(found) <= MOST_FINDINGS
    assert all("\n" not in sentence or any("\n" in text for pair in examples for text in pair) for sentence in found)

"""One form for references and hypotheses, and the rates that follow from it."""

from __future__ import annotations

import importlib.metadata
import json
import sys

import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like import ModelEvaluator
from sonosco_like.data.text import TextCleaner
from sonosco_like.data.tools.predictions import PredictedUtterance
from sonosco_like.errors import MissingPackageError, UsageError
from sonosco_like.evaluation import Evaluation, Result, find_normalizer, results_of, training_normalizer
from sonosco_like.records import UNKNOWN_TEXT

NAMES = ["training", "none", "basic", "english"]
ROWS = [
    ("a", "Mr. Brown's colour is GREY!", "mister brown is color is gray"),
    ("b", "twenty-five dollars, um, and 3 cents", "$25 and three cents"),
    ("c", "Ja, ich weiß es nicht.", "ja ich weiss es nicht"),
    ("d", "one two three", "one two two three"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Let's go, won't we?", "let us go will not we"),
        ("he's like, you know", "he is like you know"),
        ("two hundred and thirty two", "232"),
        ("one oh one", "101"),
        ("one two, three", "123"),
        ("the mobilisation of [noise] labour (laughs)", "the mobilization of labor"),
        ("$20 million", "$20000000"),
        ("um, uh, café", "cafe"),
    ],
)
def test_english_follows_the_published_rules_of_whisper(text, expected):
    assert find_normalizer("english")(text) == expected


def test_basic_takes_away_case_and_punctuation_of_any_language():
    assert find_normalizer("basic")(" «Привет», Мир!  [шум] (смех) 25 % ") == "привет мир 25"


def test_the_version_says_whose_rules_were_used():
    installed = importlib.metadata.version("whisper-normalizer")
    assert find_normalizer("english").as_dict() == {"name": "english", "version": f"whisper-normalizer {installed}"}
    assert find_normalizer("training").as_dict() == {"name": "training", "version": "sonosco_like 1"}


@pytest.mark.parametrize("name", NAMES)
def test_the_rates_are_those_that_jiwer_finds_between_the_normalized_texts(name):
    rule = find_normalizer(name).rule or TextCleaner()
    rows = [PredictedUtterance(id, reference, {"pred_text": said}, 1.0, None) for id, reference, said in ROWS]
    found = ModelEvaluator(bootstraps=0, normalizer=name).evaluate_texts(rows)
    references, hypotheses = [rule(row[1]) for row in ROWS], [rule(row[2]) for row in ROWS]
    judged = jiwer.process_words(references, hypotheses)
    counts = (judged.substitutions, judged.deletions, judged.insertions)
    assert (found.words.substitutions, found.words.deletions, found.words.insertions) == counts
    assert found.wer == pytest.approx(judged.wer)
    assert found.cer == pytest.approx(jiwer.cer(references, hypotheses))
    assert found.as_dict()["normalizer"]["name"] == name


def test_english_forgives_what_none_counts():
    rows = [PredictedUtterance(id, reference, {"pred_text": said}, 1.0, None) for id, reference, said in ROWS]
    rates = {name: ModelEvaluator(0, normalizer=name).evaluate_texts(rows).wer for name in NAMES}
    assert rates["none"] > rates["training"] > rates["english"] > 0


@given(st.text(st.sampled_from(f"abC, '.-{UNKNOWN_TEXT}"), max_size=20))
def test_texts_from_elsewhere_are_cleaned_as_in_training_and_unknown_characters_stay_visible(text):
    clean = training_normalizer(TextCleaner())
    assert clean(text).count(UNKNOWN_TEXT) == text.count(UNKNOWN_TEXT)
    assert clean(clean(text)) == clean(text)
    if UNKNOWN_TEXT not in text:
        assert clean(text) == TextCleaner()(text)


def test_a_training_without_a_cleaner_leaves_texts_as_they_are():
    assert training_normalizer(None)("As, IT is") == "As, IT is"


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(UsageError, match=r"no normalizer 'englisch'; did you mean 'english'\? Choose one of training,"):
        find_normalizer("englisch")


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "whisper_normalizer", None)
    monkeypatch.delitem(sys.modules, "whisper_normalizer.english", raising=False)
    with pytest.raises(MissingPackageError, match=r"pip install 'sonosco_like\[normalizers\]'"):
        find_normalizer("english")


def test_kept_results_are_compared_only_in_the_same_form():
    english = find_normalizer("english")
    evaluation = Evaluation([Result.of("a", "one", "one")], bootstraps=0, normalizer=english)
    content = json.loads(json.dumps(evaluation.as_dict()))
    assert results_of(content, english) == evaluation.results
    with pytest.raises(UsageError, match="Use one for both, such as --normalizer english"):
        results_of(content)
    before = {name: value for name, value in content.items() if name != "normalizer"}  # as files of before were
    assert results_of(before) == evaluation.results

"""Rates, breakdowns and lists of an evaluation, computed by hand."""

from __future__ import annotations

import json

import jiwer
import pytest

from sonosco_like.errors import UsageError
from sonosco_like.evaluation import Evaluation, Result, results_of
from sonosco_like.evaluation.files import error_lines
from sonosco_like.evaluation.results import worst

ROWS = [
    ("a", "one two three", "one two three", 1.5, "anna"),
    ("b", "four five six", "four nine", 4.0, "anna"),
    ("c", "seven", "seven seven", 0.5, "bert"),
    ("d", "nine nine nine nine", "five nine nine nine", 12.0, "bert"),
]
EVALUATION = Evaluation([Result.of(*row) for row in ROWS], bootstraps=200)
CONTRACT = {
    "wer", "cer", "ser", "substitutions", "deletions", "insertions", "reference_words", "utterances", "wer_interval",
}  # fmt: skip


def test_rates_are_of_the_corpus():
    assert EVALUATION.wer == pytest.approx(4 / 11)
    assert EVALUATION.ser == 3 / 4
    references, hypotheses = [row[1] for row in ROWS], [row[2] for row in ROWS]
    assert EVALUATION.wer == pytest.approx(jiwer.wer(references, hypotheses))
    assert EVALUATION.cer == pytest.approx(jiwer.cer(references, hypotheses))
    words = EVALUATION.words
    assert (words.substitutions, words.deletions, words.insertions) == (2, 1, 1)


def test_the_json_has_the_keys_of_the_contract_and_comes_back():
    content = json.loads(json.dumps(EVALUATION.as_dict()))
    assert set(content) >= CONTRACT
    assert content["wer"] == EVALUATION.wer
    low, high = content["wer_interval"]
    assert 0 <= low <= content["wer"] <= high
    assert content["utterances"] == 4
    assert content["reference_words"] == 11
    assert results_of(content) == EVALUATION.results


def test_without_bootstraps_there_are_no_intervals():
    content = Evaluation(EVALUATION.results, bootstraps=0).as_dict()
    assert content["wer_interval"] is None
    assert set(content) >= CONTRACT


def test_speakers_are_drawn_only_if_all_are_known():
    assert "wer_by_speaker" in EVALUATION.intervals
    anonymous = [Result.of(*row[:4]) for row in ROWS]
    assert "wer_by_speaker" not in Evaluation([*EVALUATION.results, *anonymous], bootstraps=10).intervals


def test_groups_by_length_and_speaker():
    assert [(group.name, group.utterances) for group in EVALUATION.by_length] == [
        ("0 to 1 s", 1), ("1 to 2 s", 1), ("2 to 5 s", 1), ("10 to 15 s", 1),
    ]  # fmt: skip
    assert [(group.name, group.words.errors, group.seconds) for group in EVALUATION.by_speaker] == [
        ("bert", 2, 12.5), ("anna", 2, 5.5),
    ]  # fmt: skip


def test_confusions_are_counted_on_both_sides():
    confusions = EVALUATION.confusions
    assert sum(confusions.substitutions.values()) == 2
    assert confusions.insertions == {"seven": 1}
    nine = confusions.words["nine"]
    assert (nine.in_references, nine.correct, nine.substituted) == (4, 3, 1)
    assert nine.in_hypotheses == 4
    assert sum(each.in_references for each in confusions.words.values()) == 11


def test_the_worst_come_first():
    assert [result.id for result in worst(EVALUATION.results, 2)] == ["b", "c"]
    assert worst(EVALUATION.results, 2)[0].in_words == "b: 2 errors in 3 words"
    assert worst(EVALUATION.results[:1], 2) == []


def test_the_error_file_has_the_sections_people_know():
    lines = list(error_lines(EVALUATION))
    assert lines[0] == "%WER = 36.36"
    assert lines[1].startswith(
        "Errors: 1 insertions, 1 deletions, 2 substitutions, over 11 reference words (8 correct)"
    )
    assert "d:\t(nine->five) nine nine nine" in lines
    assert "c:\tseven (*->seven)" in lines or "c:\t(*->seven) seven" in lines
    assert "1 nine -> five" in lines[lines.index("SUBSTITUTIONS: count ref -> hyp") :]
    assert "1 seven" in lines[lines.index("INSERTIONS: count hyp") :]
    assert "one   1 0 1 1" in lines[lines.index("PER-WORD STATS: word  corr tot_errs count_in_ref count_in_hyp") :]


def test_measures_are_flat_numbers_to_log():
    measures = EVALUATION.measures()
    assert {"wer", "cer", "ser", "wer_low", "wer_high"} <= set(measures)
    assert all(isinstance(value, float) for value in measures.values())


def test_speed_is_work_per_audio():
    assert Evaluation(EVALUATION.results, elapsed=9.0).real_time_factor == pytest.approx(0.5)
    assert EVALUATION.real_time_factor is None


def test_nothing_to_evaluate_is_refused_with_the_reason():
    with pytest.raises(UsageError, match=r"none of 1 utterances is usable: a\.wav is empty"):
        Evaluation([], {"a": "a.wav is empty"})
    with pytest.raises(UsageError, match="`bootstraps` must not be negative"):
        Evaluation(EVALUATION.results, bootstraps=-1)
    with pytest.raises(UsageError, match="not the JSON of an evaluation"):
        results_of({"wer": 0.5})

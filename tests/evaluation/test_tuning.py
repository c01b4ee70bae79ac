"""The weight of a language model, found on a validation set."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from rich.text import Text

from sonosco_like import loads
from sonosco_like.cli import run
from sonosco_like.decoding import CTCBeamDecoder, NGramLanguageModel, WordScores
from sonosco_like.evaluation import Evaluation, ModelEvaluator, Result, Tuning, tune_language_model
from sonosco_like.evaluation.terminal import tuning_summary
from sonosco_like.inference import DecoderSettings, load_transcriber


@pytest.fixture(scope="module")
def words(digits, tmp_path_factory):
    """A language model of ten words."""
    path = tmp_path_factory.mktemp("lm") / "ten words.arpa"
    command = ["data", "lm", str(digits.train), "--order", "1", "--closed", "--output", str(path)]
    assert run(command) == 0
    return path


def test_the_printed_options_give_the_best_rate_and_no_word_that_does_not_exist(digits, words, tmp_path, capsys):
    tuned = tmp_path / "tuned.json"
    command = ["evaluate", str(digits.run), "--manifest", str(digits.train), "--bootstraps", "0", "--worst", "0"]
    assert run([*command, "--lm", str(words), "--tune-lm", "--json", str(tuned)]) == 0
    said = capsys.readouterr()
    assert "tuning the language model" in said.err
    content = json.loads(tuned.read_text())
    rates = {(trial["lm_weight"], trial["word_bonus"]): trial["wer"] for trial in content["tuning"]}
    assert content["wer"] == min(rates.values()) < rates[0.0, 0.0]
    known = {word for row in digits.rows() for word in row["text"].split()}
    assert {word for row in content["results"] for word in row["hypothesis"].split()} <= known

    [options] = re.findall(r"^ +(--beam .*)$", said.out, re.MULTILINE)
    again = tmp_path / "again.json"
    assert run([*command, *shlex.split(options), "--json", str(again)]) == 0
    assert json.loads(again.read_text())["results"] == content["results"]

    [override] = re.findall(r"^ +--set (.*)$", said.out, re.MULTILINE)
    path, _, value = shlex.split(override)[0].partition("=")
    decoder = loads(value, CTCBeamDecoder)
    assert path == "trainer.decoder"
    assert rates[decoder.words.weight, decoder.words.word_bonus] == content["wer"]
    assert decoder.words.language_model.path == words


def test_the_search_ends_where_no_neighbour_is_better(digits, words):
    settings = DecoderSettings(language_model=words, language_model_weight=0.25, word_bonus=1.0)
    recogniser = load_transcriber(digits.run, "cpu", settings).recogniser
    tuning = tune_language_model(recogniser, ModelEvaluator(bootstraps=100), digits.test)
    assert list(tuning.trials)[:2] == [(0.0, 0.0), (0.25, 1.0)]
    errors = {weights: trial.words.errors for weights, trial in tuning.trials.items()}
    weight, bonus = tuning.best
    near = [(weight + 0.125 * a, bonus + 0.25 * b) for a, b in ((1, 0), (0, 1), (-1, 0), (0, -1))]
    assert all(errors[each] >= errors[tuning.best] for each in near if each[0] >= 0)
    assert all(weight >= 0 for weight, _ in tuning.trials)
    assert recogniser.decoder.words.weight == 0.25


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "name one with --lm FILE"),
        (["--beam", "8"], "name one with --lm FILE"),
        (["--lm", "{words}", "--against", "{run}"], "--tune-lm does not go with --against"),
    ],
)
def test_mistakes_are_refused(digits, words, capsys, options, said):
    options = [part.format(words=words, run=digits.run) for part in options]
    assert run(["evaluate", str(digits.run), "--manifest", str(digits.test), "--tune-lm", *options]) == 2
    assert said in capsys.readouterr().err


def test_a_language_model_that_does_not_help_is_not_recommended(words):
    right, wrong = (Evaluation([Result.of("a", "one two", said)], bootstraps=0) for said in ("one two", "one"))
    decoder = CTCBeamDecoder(words=WordScores(language_model=NGramLanguageModel(path=words)))
    for trials, said in (
        ({(0.0, 0.0): right, (0.5, 0.0): right, (0.5, 1.0): wrong}, "Decode without it"),
        ({(0.0, 0.0): wrong, (0.5, 0.0): right}, "--lm-weight 0.5 --word-bonus 0"),
    ):
        parts = tuning_summary(Tuning(decoder, trials), "val.jsonl")
        assert said in "".join(str(part) for part in parts if isinstance(part, Text))

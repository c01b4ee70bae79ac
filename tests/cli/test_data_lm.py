"""`sonosco data lm` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sonosco_like.cli import run
from sonosco_like.decoding import NGramLanguageModel


@pytest.fixture
def manifest(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    texts = ["Seven, nine; four!", "one two three four five", "zero eight six", "two seven one"]
    rows = [{"audio_filepath": f"{n}.wav", "duration": 1.0, "text": text} for n, text in enumerate(texts)]
    Path("train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "train.jsonl"


def test_it_says_what_it_learned_and_how_to_use_it(manifest, capsys):
    assert run(["data", "lm", manifest, "--output", "lm.arpa", "--case", "upper"]) == 0
    said = capsys.readouterr()
    assert "lm.arpa: 10 words from 4 texts; n-grams: 13 of order 1, " in said.out
    assert "too few or too alike" in said.out
    assert "--lm lm.arpa --tune-lm" in said.out
    assert "learning order 3" in said.err
    model = NGramLanguageModel(path=Path("lm.arpa")).load()
    assert model.score(model.start(), "SEVEN")[0] > model.score(model.start(), "seven")[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{manifest}"], "Missing option '--output'"),
        (["--output", "lm.arpa"], "Missing argument 'SOURCES...'"),
        (["{manifest}", "--output", "{manifest}"], "write over it with --force"),
        (["{manifest}", "--output", "lm.arpa", "--order", "0"], "0 is not in the range"),
        (["{manifest}", "--output", "train.jsonl/lm.arpa"], "lm.arpa cannot be written"),
        (["gone.jsonl", "--output", "lm.arpa"], "gone.jsonl does not exist"),
    ],
)
def test_mistakes_are_said_in_a_line_with_exit_code_2(manifest, capsys, arguments, said):
    assert run(["data", "lm", *(part.format(manifest=manifest) for part in arguments)]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert "Traceback" not in message

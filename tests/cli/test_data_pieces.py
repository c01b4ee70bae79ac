"""`sonosco data pieces` as a user types it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from sonosco_like.cli import run
from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.text import SentencePieceTokenizer
from sonosco_like.serialization import loads

pytest.importorskip("sentencepiece")

TEXTS = ["Seven, nine; four!", "one two three four five", "zero eight six", "two seven one"]


def write(path: Path, texts: list[str]) -> str:
    rows = [{"audio_filepath": f"{n}.wav", "duration": 1.0, "text": text} for n, text in enumerate(texts)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def manifest(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    return write(Path("corpus/train.jsonl"), TEXTS)


def pieces(*arguments: str) -> int:
    return run(["data", "pieces", *arguments])


def test_the_same_texts_give_the_same_file_and_a_folder_is_made(manifest):
    for name in ("a/b/p.model", "q.model"):
        assert pieces(manifest, "--size", "30", "--output", name) == 0
    assert Path("a/b/p.model").read_bytes() == Path("q.model").read_bytes()
    assert [path.name for path in Path("a/b").iterdir()] == ["p.model"]
    assert SentencePieceTokenizer(model=Path("q.model")).size == 30


@pytest.mark.parametrize("name", ["pieces.model", "my pieces: 30.model", "1.0"])
def test_the_lines_of_yaml_that_it_prints_make_a_dataset(manifest, capsys, name):
    assert pieces(manifest, "--size", "30", "--output", name, "--case", "upper") == 0
    printed = capsys.readouterr()
    lines = [line.strip() for line in printed.out.splitlines() if line.startswith("  ")]
    assert len(lines) == 2
    config = "\n".join(["class: AudioDataset", f"manifest: {manifest}", *lines])
    dataset = loads(config, AudioDataset)
    assert (dataset.tokenizer.model, dataset.tokenizer.size, dataset.cleaner.case) == (Path(name), 30, "upper")
    assert dataset.tokenizer.decode(dataset.tokenizer.encode(dataset.cleaner(TEXTS[0]))) == "SEVEN NINE FOUR"
    assert isinstance(yaml.safe_load(config), dict)
    assert "`vocabulary_size`, it is 30" in printed.out
    assert "reading" in printed.err
    assert "learning 30 labels" in printed.err


def test_several_manifests_are_read_in_order(manifest, tmp_path):
    other = write(tmp_path / "other.jsonl", ["quick wax jumps"])
    assert pieces(manifest, other, "--size", "40", "--output", "both.model") == 0
    whole = write(tmp_path / "whole.jsonl", [*TEXTS, "quick wax jumps"])
    assert pieces(whole, "--size", "40", "--output", "whole.model") == 0
    assert Path("both.model").read_bytes() == Path("whole.model").read_bytes()


def test_a_file_that_exists_is_only_replaced_with_force(manifest, capsys):
    Path("p.model").write_text("mine")
    assert pieces(manifest, "--size", "30", "--output", "p.model") == 2
    assert "--force" in capsys.readouterr().err
    assert pieces(manifest, "--size", "9999", "--output", "p.model", "--force") == 2
    assert Path("p.model").read_text() == "mine"
    assert pieces(manifest, "--size", "30", "--output", "p.model", "--force") == 0
    assert Path("p.model").read_bytes() != b"mine"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_size_that_is_refused_names_the_limit_and_the_limit_is_right(manifest, capsys, kind):
    for size, word, beyond in (("9999", "largest", 1), ("5", "smallest", -1)):
        assert pieces(manifest, "--size", size, "--output", "p.model", "--kind", kind) == 2
        message = capsys.readouterr().err
        assert f"is the {word} number possible" in message
        limit = int(message.split(f" is the {word}")[0].split()[-1])
        assert pieces(manifest, "--size", str(limit + beyond), "--output", "p.model", "--kind", kind) == 2
        assert not Path("p.model").exists()
        assert pieces(manifest, "--size", str(limit), "--output", "p.model", "--kind", kind) == 0
        Path("p.model").unlink()
        capsys.readouterr()


def test_long_texts_are_learnt_too(manifest, tmp_path):
    long = write(tmp_path / "long.jsonl", [" ".join(["unusual"] * 2000)])
    assert pieces(long, "--size", "13", "--output", "p.model") == 0
    assert "al" in SentencePieceTokenizer(model=Path("p.model")).symbols


@pytest.mark.parametrize(
    ("texts", "output", "said"),
    [
        ([], "p.model", "has no rows"),
        (["", " ?! "], "p.model", "all texts are empty"),
        (TEXTS, "corpus", "is a directory"),
        (TEXTS, "corpus/train.jsonl/p.model", "cannot be written"),
        (TEXTS, "/proc/nowhere/p.model", "cannot be written"),
    ],
)
def test_mistakes_are_said_in_a_line_with_exit_code_2(manifest, tmp_path, capsys, texts, output, said):
    assert pieces(write(tmp_path / "m.jsonl", texts), "--size", "30", "--output", output) == 2
    message = capsys.readouterr().err
    assert said in message
    assert "Traceback" not in message
    assert not Path("p.model").exists()


def test_without_the_package_the_error_names_the_extra(manifest, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    assert pieces(manifest, "--size", "30", "--output", "p.model") != 0
    assert "sonosco_like[bpe]" in capsys.readouterr().err

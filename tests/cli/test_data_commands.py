"""`sonosco data ...` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np
import pytest
import soundfile

from sonosco_like.cli import run
from sonosco_like.cli.data import data

COMMANDS = sorted(data.commands)


def sound(path: Path, text: str | None = None, seconds: float = 0.3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.1 * np.sin(np.arange(int(seconds * 16000)) * 0.1), 16000)
    if text is not None:
        path.with_suffix(".txt").write_text(text)
    return path


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def recordings(tmp_path) -> Path:
    """Twelve recordings of four speakers."""
    for number in range(12):
        sound(tmp_path / "in" / f"s{number % 4}" / f"{number:02d}.wav", f"number {number % 6}")
    return tmp_path / "in"


@pytest.fixture
def manifest(recordings) -> Path:
    assert run(["data", "manifest", str(recordings), "--speaker", "^(s[0-9])/"]) == 0
    return recordings / "manifest.jsonl"


def test_the_contract_names_are_there():
    corpora = {"synth", "an4", "librispeech", "common-voice", "tedlium", "voxforge"}
    assert set(COMMANDS) == corpora | {"manifest", "merge", "split", "stats", "pieces", "lm"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, capsys):
    assert run(["data", command, "--help"]) == 0
    assert f"sonosco data {command} " in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_does(command):
    options = [each for each in data.commands[command].params if isinstance(each, click.Option)]
    assert all(option.help for option in options)
    assert "force" in {option.name for option in options}


def test_help_is_quick_because_nothing_heavy_is_imported(run_python):
    code = (
        "import sys\nfrom sonosco_like.cli import run\ncode = run(['data', 'synth', '--help'])\n"
        "print(code, sorted({'torch', 'numpy', 'pyarrow', 'rich', 'matplotlib', 'soundfile'} & set(sys.modules)))"
    )
    assert run_python(code).stdout.splitlines()[-1] == "0 []"


def test_synth_writes_a_corpus_and_stats_describes_it(tmp_path, capsys):
    corpus = tmp_path / "corpus"
    command = ["data", "synth", str(corpus), "--kind", "commands", "--minutes", "0.3", "--seed", "1", "--workers", "1"]
    assert run(command) == 0
    assert "train.jsonl" in capsys.readouterr().out
    assert run(command) == 2
    assert "--force" in capsys.readouterr().err
    assert run([*command, "--force", "--variety", "0"]) == 0
    picture = tmp_path / "lengths.png"
    assert run(["data", "stats", str(corpus / "train.jsonl"), "--picture", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "suspicious rows   0" in capsys.readouterr().out


def test_manifest_reports_what_it_left_out(recordings, capsys):
    sound(recordings / "mute.wav")
    (sound(recordings / "bad.wav", "x")).write_bytes(b"nonsense")
    assert run(["data", "manifest", str(recordings), "--output", str(recordings / "m.jsonl")]) == 0
    printed = capsys.readouterr().out
    assert "12 utterances" in printed
    assert "1 recordings without a text" in printed
    assert "1 recordings that cannot be read" in printed
    assert len(rows(recordings / "m.jsonl")) == 12


@pytest.mark.parametrize("by", ["speaker", "text", "both"])
def test_split_keeps_parts_disjoint(by, manifest, tmp_path, capsys):
    command = ["data", "split", str(manifest), str(tmp_path / "out"), "--by", by, "--shares", "0.5", "0.25", "0.25"]
    if by == "both":  # every speaker says half of the six texts, so that two groups remain for three parts
        assert run(command) == 2
        assert "at least 3 groups" in capsys.readouterr().err
        return
    assert run(command) == 0
    values = [{row[by] for row in rows(tmp_path / "out" / f"{part}.jsonl")} for part in ("train", "val", "test")]
    assert all(values)
    assert sum(map(len, values)) == len(set.union(*values))
    assert run(command) == 2


def test_split_writes_no_part_without_a_share(manifest, tmp_path, capsys):
    assert run(["data", "split", str(manifest), str(tmp_path / "out"), "--shares", "0.5", "0.5", "0"]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["train.jsonl", "val.jsonl"]


def test_merge_says_what_it_did(manifest, tmp_path, capsys):
    sound(tmp_path / "more" / "x.wav", "more")
    assert run(["data", "manifest", str(tmp_path / "more")]) == 0
    output = tmp_path / "all.jsonl"
    more = tmp_path / "more" / "manifest.jsonl"
    assert run(["data", "merge", str(manifest), str(more), str(manifest), "--output", str(output)]) == 0
    assert len(rows(output)) == 13
    assert "12 rows were left out" in capsys.readouterr().out


def test_stats_can_be_read_by_programs(manifest, capsys):
    assert run(["data", "stats", str(manifest), "--json", "--alphabet", "abcdefghijklmnopqrstuvwxyz "]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["speakers"], found["recordings"], found["decoded"]) == (12, 4, 12, 12)
    assert [(row["row"], row["reason"]) for row in found["suspicious"]] == [(row, "no label") for row in range(1, 13)]
    assert sum(found["not_in_alphabet"].values()) == 12


def test_stats_does_not_write_over_a_picture(manifest, tmp_path, capsys):
    (tmp_path / "mine.png").write_text("mine")
    assert run(["data", "stats", str(manifest), "--picture", str(tmp_path / "mine.png")]) == 2
    assert (tmp_path / "mine.png").read_text() == "mine"


def test_a_corpus_from_a_folder_by_its_command(tmp_path, capsys):
    for part, speaker in (("train-clean-100", "1"), ("dev-clean", "2"), ("test-clean", "3")):
        chapter = tmp_path / "LibriSpeech" / part / speaker / "9"
        sound(chapter / f"{speaker}-9-0000.flac")
        (chapter / f"{speaker}-9.trans.txt").write_text(f"{speaker}-9-0000 SOME WORDS\n{speaker}-9-0001 NO AUDIO\n")
    source = ["--source", str(tmp_path / "LibriSpeech")]
    assert run(["data", "librispeech", str(tmp_path / "out"), *source]) == 0
    assert "Left out: 3 utterances" in capsys.readouterr().out
    assert rows(tmp_path / "out" / "train.jsonl")[0]["text"] == "some words"
    assert run(["data", "librispeech", str(tmp_path / "part"), *source, "--part", "dev-clean"]) == 0
    assert [path.name for path in (tmp_path / "part").glob("*.jsonl")] == ["val.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["an4", "out", "--source", "nothing.tgz"], "nothing.tgz"),
        (["common-voice", "out"], "commonvoice.mozilla.org"),
        (["librispeech", "out", "--part", "dev"], "no part 'dev'"),
        (["voxforge", "out", "--submissions", "0"], "at least 1"),
        (["tedlium", "out", "--source", "."], "There is no TEDLIUM"),
        (["synth", "out", "--minutes", "-1"], "minutes"),
        (["stats", "nothing.jsonl"], "nothing.jsonl"),
        (["split", "nothing.jsonl", "out"], "nothing.jsonl"),
        (["merge", "nothing.jsonl", "--output", "x.jsonl"], "nothing.jsonl"),
        (["manifest", "nothing"], "nothing is not a folder"),
    ],
)
def test_what_the_user_did_wrong_is_said_in_a_line_with_exit_code_2(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["data", *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert "Traceback" not in printed

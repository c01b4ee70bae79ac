"""`sonosco init` as a user types it: a config that checks, trains and transcribes; and what it refuses."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import soundfile
import yaml
from warm import warm_python

from sonosco_like.cli import run

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
import tones


@pytest.fixture
def sets(tmp_path, monkeypatch, logging_restored) -> tuple[str, str]:
    """Manifests for training and validation, of speakers of their own, whose recordings are tones."""
    monkeypatch.chdir(tmp_path)
    for name, count in (("train", 24), ("val", 6)):
        tones.make_corpus(Path(name), [1.0 + 0.1 * number for number in range(count)], "all.jsonl")
        rows = rows_of(f"{name}/all.jsonl")
        for number, row in enumerate(rows):
            row.update(audio_filepath=f"{name}/{row['audio_filepath']}", speaker=f"{name} {number % 6}")
        write(Path(f"{name}.jsonl"), rows)
    return "train.jsonl", "val.jsonl"


def write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def rows_of(name: str) -> list[dict]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def init(sets, *options: str) -> int:
    return run(["init", "mine", "--train", sets[0], "--val", sets[1], "--minutes", "0.05", *options])


def test_the_config_checks_and_trains_as_it_is_and_says_what_to_do_next(sets, capsys):
    assert init(sets) == 0
    commands = re.findall(r"^  sonosco (.+)$", capsys.readouterr().out, re.MULTILINE)
    assert [each.split()[0] for each in commands] == ["check", "train"]
    for command in commands:
        assert run(command.split()) == 0, capsys.readouterr().err
    assert Path("mine/run/final/trainer.yaml").is_file()


@pytest.mark.parametrize("model", ["conformer", "las", "tds"])
def test_every_model_can_be_had_in_a_short_file(sets, capsys, model):
    assert init(sets, "--model", model) == 0
    assert f"model      {model}\n" in capsys.readouterr().out
    assert run(["check", "--config", "mine/config.yaml", "--open", "none"]) == 0, capsys.readouterr().err
    lines = Path("mine/config.yaml").read_text().splitlines()
    assert len(lines) < 70
    assert max(map(len, lines)) <= 120


def test_nothing_is_overwritten(sets, capsys):
    assert init(sets) == 0
    before = Path("mine/config.yaml").read_bytes()
    assert init(sets, "--model", "tds") == 2
    assert "nothing is overwritten" in capsys.readouterr().err
    assert Path("mine/config.yaml").read_bytes() == before


def test_stereo_telephone_speech_in_greek_letters_needs_no_hand(sets, capsys):
    """The characters, the sample rate and the channels are those of the recordings."""
    for name in sets:
        rows = rows_of(name)
        for number, row in enumerate(rows):
            samples, _ = soundfile.read(row["audio_filepath"], always_2d=True)
            audio = Path(f"{Path(name).stem}-{number}.wav")
            soundfile.write(audio, samples[::2].repeat(2, axis=1), 8000)
            row.update(audio_filepath=str(audio), text="Ένα, δύο" if number % 2 else "ΤΡΊΑ")
        write(Path(name), rows)
    assert init(sets) == 0
    printed = capsys.readouterr().out
    dataset = yaml.safe_load(Path("mine/config.yaml").read_text())["trainer"]["train_data_loader"]["dataset"]
    assert dataset["features"]["sample_rate"] == 8000
    assert dataset["tokenizer"]["characters"] == "".join(sorted(set("ένα δύο τρία")))
    assert "24 have several channels" in printed
    assert "8,000 samples per second" in printed
    assert run(["check", "--config", "mine/config.yaml"]) == 0, capsys.readouterr().err


def test_word_pieces_are_learned_on_the_spot(sets, capsys):
    assert init(sets, "--labels", "pieces") == 0
    tokenizer = yaml.safe_load(Path("mine/config.yaml").read_text())["trainer"]["train_data_loader"]["dataset"][
        "tokenizer"
    ]
    assert tokenizer == {"class": "SentencePieceTokenizer", "model": "mine/pieces.model"}
    assert Path("mine/pieces.model").is_file()
    assert run(["check", "--config", "mine/config.yaml"]) == 0, capsys.readouterr().err


def test_ctrl_c_leaves_no_half_of_the_files(sets):
    """Batches are timed after the word pieces were written, and before the config is."""
    options = ["--train", sets[0], "--val", sets[1], "--labels", "pieces"]
    process = subprocess.Popen([*warm_python(), "-m", "sonosco_like", "init", "mine", *options])
    pieces, begin = Path("mine/pieces.model"), time.monotonic()
    while not pieces.exists() and process.poll() is None and time.monotonic() - begin < 300:
        time.sleep(0.01)
    assert pieces.exists()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) == 130
    assert list(Path("mine").iterdir()) == []


def test_without_validation_data_the_command_that_splits_is_named(sets, capsys):
    assert run(["init", "mine", "--train", sets[0]]) == 2
    assert f"sonosco data split {sets[0]} corpus --by speaker" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: [], "has no rows"),
        (lambda rows: [{**row, "text": ""} for row in rows], "has a text"),
        (lambda rows: [{key: row[key] for key in row if key != "text"} for row in rows], "data manifest"),
        (lambda rows: [{**row, "audio_filepath": f"gone {row['audio_filepath']}"} for row in rows], "No recording"),
        (lambda rows: rows_of("val.jsonl"), "are also in"),
    ],
)
def test_data_that_cannot_be_used_is_refused_in_words_and_nothing_is_written(sets, capsys, change, said):
    write(Path(sets[0]), change(rows_of(sets[0])))
    assert init(sets) == 2
    message = capsys.readouterr().err
    assert said in message
    assert "Traceback" not in message
    assert not Path("mine/config.yaml").exists()


def test_a_speaker_in_both_sets_and_rows_of_no_use_are_named_and_left_out(sets, capsys):
    train, val = rows_of(sets[0]), rows_of(sets[1])
    train[0]["speaker"] = val[0]["speaker"]
    train[1]["audio_filepath"] = "gone.wav"
    write(Path(sets[0]), train)
    assert init(sets) == 0
    printed = capsys.readouterr().out
    assert f"speakers of val.jsonl are in train.jsonl too ({val[0]['speaker']})" in printed
    assert "1 of 24 rows of train.jsonl cannot be used" in printed
    assert run(["check", "--config", "mine/config.yaml"]) == 0, capsys.readouterr().err

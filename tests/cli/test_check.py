"""`sonosco check`: what a run would cost, and everything that would stop it, before it begins."""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path

import pytest
import torch
import yaml
from tiny import tiny_config

from sonosco_like import serializable
from sonosco_like.cli import run
from sonosco_like.losses import CTCLoss

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
import matrix_parts

pytestmark = pytest.mark.usefixtures("elsewhere")


@serializable
def no_number(output, target):
    """A loss that is no number."""
    return (output - target).sum() * float("nan")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of its own to run in."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def config(tmp_path):
    """A complete small config with real audio."""
    matrix_parts.make_corpus(tmp_path / "noise")
    path = tmp_path / "config.yaml"
    path.write_text(matrix_parts.config_text(tmp_path / "noise", "deepspeech2"))
    return path


def test_a_good_config_is_described_and_nothing_is_written(config, capsys, tmp_path):
    assert run(["check", "--config", str(config)]) == 0
    said = capsys.readouterr().out
    for part in (
        "DeepSpeech2, ", "encoder", "5 batches per epoch, 14 utterances", "padding", "Alphabet, 7 labels",
        "GreedyCTCDecoder", "largest batch of each length\n  ", " MB that can be used on cpu", "tensors",
        "A run of this config can begin.",
    ):  # fmt: skip
        assert part in said
    assert list((tmp_path / "here").iterdir()) == []


def test_the_parts_of_a_model_add_up(config, capsys):
    assert run(["check", "--config", str(config)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    total = next(int(line[2].replace(",", "")) for line in lines if line[:2] == ["model", "DeepSpeech2,"])
    parts = [int(line[1].replace(",", "")) for line in lines if line[0] in ("encoder", "ctc_output")]
    assert sum(parts) == total


def test_no_batch_is_tried_without_the_weights_that_the_model_begins_with(config, tmp_path, capsys):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "pytorch_model.bin").write_bytes(b"")
    assert run(["check", "--config", str(config), "--set", f"init_from={tmp_path / 'w'}"]) == 2
    said = capsys.readouterr()
    assert "problem: init_from: " in said.err
    assert "5 batches per epoch" in said.out
    assert "largest batch of each length" not in said.out


def test_the_rate_of_each_group_is_listed(config, capsys):
    assert run(["check", "--config", str(config), "--set", "trainer.optimizer.layer_decay=0.5"]) == 0
    out = capsys.readouterr().out
    lines = out.split("learning rates\n")[1].splitlines()
    rates = [float(line.split()[1]) for line in lines if line.startswith("  rest")]
    assert rates == [rates[0] * 0.5**number for number in range(len(rates))]
    assert len(rates) > 1
    counts = [int(line.split()[3].replace(",", "")) for line in lines if line.startswith("  rest")]
    assert f"{sum(counts):,} parameters" in out  # of the model


def test_own_data_can_be_checked(config, capsys, tmp_path):
    assert run(["check", "--config", str(config), "--train", str(tmp_path / "noise" / "val.jsonl")]) == 0
    assert "2 batches per epoch, 4 utterances" in capsys.readouterr().out


def test_with_own_data_the_test_set_of_the_config_need_not_be_there(config, capsys, tmp_path):
    content = yaml.safe_load(config.read_text())
    trainer = content["trainer"]
    trainer["test_data_loader"] = copy.deepcopy(trainer["val_data_loader"])
    trainer["test_data_loader"]["dataset"]["manifest"] = "nowhere.jsonl"
    config.write_text(yaml.safe_dump(content))
    assert run(["check", "--config", str(config)]) == 2
    assert "nowhere.jsonl" in capsys.readouterr().err
    assert run(["check", "--config", str(config), "--train", str(tmp_path / "noise" / "val.jsonl")]) == 0


def test_all_problems_are_found_at_once(config, capsys):
    wrong = [
        "trainer.decoder=null",
        "trainer.val_data_loader.dataset.manifest=nowhere.jsonl",
        "trainer.model.vocabulary_size=9",
        "trainer.callbacks[5].monitor=val_los",
    ]
    assert run(["check", "--config", str(config), *(part for each in wrong for part in ("--set", each))]) == 2
    captured = capsys.readouterr()
    assert "word_error_rate reads decoded text" in captured.err
    assert "nowhere.jsonl" in captured.err
    assert "but the model writes 9 (--set trainer.model.vocabulary_size): leave `model.vocabulary_si" in captured.err
    assert "reads 'val_los', which is not computed" in captured.err
    assert "4 problems" in captured.out


def test_a_batch_that_fails_is_a_problem_and_not_a_traceback(config, capsys, monkeypatch):
    monkeypatch.setattr(CTCLoss, "__call__", lambda *_: torch.ones(2) @ torch.ones(3))
    assert run(["check", "--config", str(config)]) == 2
    said = capsys.readouterr().err
    assert re.search(r"problem: A batch with features of \d x \d+ x 6, .* failed: RuntimeError: ", said)


def test_a_loss_that_is_no_number_is_said_of_the_batch_that_was_tried(tmp_path, capsys):
    (tmp_path / "tiny.yaml").write_text(tiny_config(""))
    arguments = ["check", "--config", str(tmp_path / "tiny.yaml"), "--import", "tiny"]
    assert run([*arguments, "--import", "test_check", "--set", "trainer.loss=test_check.no_number"]) == 2
    assert "problem: The loss of the batch tried, the first, is nan." in capsys.readouterr().err


def test_data_is_listed_in_the_order_of_its_use_and_one_batch_is_no_batches(config, capsys):
    content = yaml.safe_load(config.read_text())
    content["trainer"]["test_data_loader"] = copy.deepcopy(content["trainer"]["val_data_loader"])
    content["trainer"]["test_data_loader"]["sampler"]["batch_size"] = 4
    config.write_text(yaml.safe_dump(content))
    assert run(["check", "--config", str(config)]) == 0
    said = capsys.readouterr().out.partition("\ndata\n")[2].splitlines()
    assert [line.split()[:3] for line in said[:3]] == [
        ["train", "5", "batches"], ["val", "2", "batches"], ["test", "1", "batch"],
    ]  # fmt: skip


def test_a_mapping_without_a_class_is_no_data(config, capsys):
    wrong = "trainer.test_data_loader={dataset: {manifest: x.jsonl}}"
    assert run(["check", "--config", str(config), "--set", wrong]) == 2
    assert "problem: The test data is a mapping and no loader: it lacks `class:" in capsys.readouterr().err


def test_problems_of_the_config_itself_come_with_line_and_path(config, capsys):
    assert run(["check", "--config", str(config), "--set", "trainer.epochz=1", "--set", "trainer.clip_grads=much"]) == 2
    said = capsys.readouterr().err
    assert "trainer.epochz" in said
    assert "trainer.clip_grads" in said


def test_data_that_is_not_ours_is_checked_too(tmp_path, capsys):
    (tmp_path / "foreign.yaml").write_text(
        "class: Experiment\nname: foreign\ntrainer: {class: ModelTrainer, model: {class: tiny.Net}, "
        "loss: tiny.squared_error, epochs: 1, train_data_loader: {class: tiny.Sums}}\n"
    )
    arguments = ["check", "--config", str(tmp_path / "foreign.yaml"), "--import", "tiny"]
    assert run(arguments) == 0
    said = capsys.readouterr().out
    assert "Sums, an unknown number of batches" in said
    assert "the first: inputs of 8 x 4" in said


def test_every_row_that_cannot_be_used_is_listed_at_once(config, tmp_path, capsys):
    """Not the first of them, and not only those of the batch that is tried."""
    manifest = tmp_path / "noise" / "train.jsonl"
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    rows[1]["text"] = "aä"
    rows[4]["text"] = "œb"
    rows[6]["audio_filepath"] = "gone.wav"
    torn = tmp_path / "noise" / rows[9]["audio_filepath"]
    torn.write_bytes(torn.read_bytes()[:200])
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["check", "--config", str(config)]) == 2
    said = capsys.readouterr().err
    for row, words in ((2, "no label for 'ä'"), (5, "no label for 'œ'"), (7, "gone.wav"), (10, "")):
        assert re.search(rf"  train.jsonl, row {row} \(\S+\): .*{words}", said), said


def test_a_long_list_of_unusable_rows_is_counted_to_its_end(config, tmp_path, capsys):
    manifest = tmp_path / "noise" / "train.jsonl"
    row = json.loads(manifest.read_text().splitlines()[0])
    rows = [{**row, "id": str(number), "audio_filepath": f"{number}.wav"} for number in range(50)]
    manifest.write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert run(["check", "--config", str(config)]) == 2
    said = capsys.readouterr().err
    assert f"problem: {manifest}: 50 rows: missing file. Correct `audio_filepath`" in said
    assert said.count(".wav\n") == 20
    assert "  and 30 more rows\n" in said


def test_rows_that_are_left_out_are_a_warning_and_no_problem(config, tmp_path, capsys):
    (tmp_path / "noise" / "train-3.wav").unlink()
    changed = "trainer.train_data_loader.dataset.on_bad=skip"
    assert run(["check", "--config", str(config), "--set", changed]) == 0
    printed = capsys.readouterr()
    assert f"warning: left out: {tmp_path / 'noise' / 'train.jsonl'}: 1 row: missing file" in printed.err
    assert printed.out.endswith("A run of this config can begin. 1 warning\n")

"""`--train`, `--val` and `--test`: the user's own data in any config, also in one without such a loader."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml
from tiny import tiny_config

from sonosco_like.cli import run
from sonosco_like.cli.options import read_with_own_data
from sonosco_like.errors import UsageError

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
import matrix_parts


@pytest.fixture
def config(tmp_path, monkeypatch, logging_restored):
    """A small config with real audio, and with loaders for training and validation only."""
    matrix_parts.make_corpus(tmp_path / "noise")
    path = tmp_path / "config.yaml"
    path.write_text(matrix_parts.config_text(tmp_path / "noise", "deepspeech2"))
    monkeypatch.chdir(tmp_path)
    return path


@pytest.fixture
def val(tmp_path):
    return tmp_path / "noise" / "val.jsonl"


def change(config, edit):
    """Write a config anew after `edit` has changed its trainer."""
    content = yaml.safe_load(config.read_text())
    edit(content["trainer"])
    config.write_text(yaml.safe_dump(content))


def read(config, *overrides, **given):
    return read_with_own_data(
        config, overrides, {f"{name}_manifest": given.get(name) for name in ("train", "val", "test")}
    )


def test_check_counts_a_test_set_that_the_config_has_no_loader_for(config, val, capsys):
    assert run(["check", "--config", str(config), "--test", str(val)]) == 0
    assert "test           2 batches per epoch, 4 utterances" in capsys.readouterr().out


def test_a_test_loader_that_was_lacking_is_like_the_one_for_validation(config, val):
    trainer = read(config, test=val).trainer
    test, model = trainer.test_data_loader, trainer.val_data_loader
    assert test.dataset.manifest == val
    assert test.sampler is model.sampler
    for shared in ("features", "normalization", "tokenizer", "cleaner"):
        assert getattr(test.dataset, shared) is getattr(model.dataset, shared)


def test_a_validation_loader_that_was_lacking_is_like_the_one_for_training_without_chance(config, val):
    change(config, lambda trainer: trainer.pop("val_data_loader"))
    trainer = read(config, val=val, test=val).trainer
    for loader in (trainer.val_data_loader, trainer.test_data_loader):
        assert loader.dataset.manifest == val
        assert loader.dataset.waveform_augmentations == loader.dataset.feature_augmentations == []
        assert (loader.sampler.shuffle, loader.sampler.batch_size) == (False, 3)
    assert trainer.train_data_loader.sampler.shuffle
    assert len(trainer.train_data_loader.dataset.feature_augmentations) == 1


def test_a_new_loader_has_the_statistics_of_the_training_data(config, val):
    given = "trainer.train_data_loader.dataset.normalization={class: GlobalNormalization}"
    change(config, lambda trainer: trainer.pop("val_data_loader"))
    trainer = read(config, given, val=val).trainer
    assert trainer.val_data_loader.dataset.normalization is trainer.train_data_loader.dataset.normalization


def test_several_training_manifests_are_one_corpus_and_continue_by_the_same_command(config, tmp_path, val, capsys):
    noise = tmp_path / "noise"
    given = ["--train", str(noise / "train.jsonl"), "--train", str(val)]
    command = ["train", "--config", str(config), "--run-dir", "run", "--resume", "auto", *given]
    assert run([*command, "--set", "trainer.epochs=1"]) == 0
    assert run([*command, "--set", "trainer.epochs=2"]) == 0
    assert "resumed from step 6" in capsys.readouterr().out
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["trainer"]
    manifests = written["train_data_loader"]["dataset"]["manifest"]
    assert manifests == [str(noise / "train.jsonl"), str(val)]


def test_check_prints_the_shares_of_a_mixture(config, tmp_path, val, capsys):
    mixed = f"[{{manifest: {val}, weight: 2}}, {{manifest: {tmp_path / 'noise' / 'train.jsonl'}, weight: 1}}]"
    assert run(["check", "--config", str(config), "--set", f"trainer.train_data_loader.dataset.manifest={mixed}"]) == 0
    said = capsys.readouterr().out
    assert f"66.7% from {val}: 12 utterances, 3 times its 4" in said
    assert "18 utterances" in said


def test_a_null_is_no_loader(config, val):
    assert read(config, "trainer.val_data_loader=null", val=val).trainer.val_data_loader.dataset.manifest == val


def test_an_alias_does_not_put_test_data_into_the_validation(config, tmp_path, val):
    config.write_text(
        config.read_text()
        .replace("val_data_loader:\n", "val_data_loader: &val\n")
        .replace("  callbacks:", "  test_data_loader: *val\n  callbacks:")
    )
    train = tmp_path / "noise" / "train.jsonl"
    trainer = read(config, val=val, test=train).trainer
    assert trainer.val_data_loader.dataset.manifest == val
    assert trainer.test_data_loader.dataset.manifest == train


def test_a_run_keeps_its_new_loader_and_the_same_command_continues_it(config, tmp_path, val, capsys):
    command = ["train", "--config", str(config), "--run-dir", "run", "--resume", "auto", "--test", str(val)]
    assert run([*command, "--set", "trainer.epochs=1"]) == 0
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["trainer"]
    assert written["test_data_loader"]["class"] == "AudioDataLoader"
    assert written["test_data_loader"]["dataset"]["manifest"] == str(val)
    assert run([*command, "--set", "trainer.epochs=2"]) == 0
    assert "resumed from step" in capsys.readouterr().out


def test_a_run_that_was_begun_without_a_test_set_gets_none_on_the_way(config, val, capsys):
    command = ["train", "--config", str(config), "--run-dir", "run", "--resume", "auto", "--set", "trainer.epochs=1"]
    assert run(command) == 0
    assert run([*command, "--test", str(val)]) == 2
    assert "was started without test data, which cannot be added now. Leave out --test" in capsys.readouterr().err


def test_of_several_validation_sets_none_is_guessed(config, val, capsys):
    change(config, lambda trainer: trainer.update(val_data_loader={"near": trainer["val_data_loader"]}))
    assert run(["check", "--config", str(config), "--val", str(val)]) == 2
    said = capsys.readouterr().err
    assert "several validation sets (near)" in said
    assert f"give --set trainer.val_data_loader.near.dataset.manifest={val}" in said
    assert run(["check", "--config", str(config), "--test", str(val)]) == 2
    assert "several by name (near)" in (said := capsys.readouterr().err)
    assert "Add a `test_data_loader` to the config." in said


def test_a_loader_of_the_users_own_kind_cannot_be_imitated(tmp_path, val, capsys):
    (tmp_path / "tiny.yaml").write_text(tiny_config(""))
    arguments = ["--config", str(tmp_path / "tiny.yaml"), "--import", "tiny", "--test", str(val)]
    assert run(["check", *arguments]) == 2
    assert "none can be made like its `val_data_loader`, which is a Sums" in capsys.readouterr().err


def with_corpus(config):
    """Have the config make its corpus in a folder where there is nothing yet."""
    content = yaml.safe_load(config.read_text())
    content["corpus"] = {"class": "SyntheticCorpus", "folder": "made", "minutes": 4}
    for name in ("train", "val"):
        content["trainer"][f"{name}_data_loader"]["dataset"]["manifest"] = f"made/{name}.jsonl"
    config.write_text(yaml.safe_dump(content))


@pytest.mark.parametrize(("given", "needed"), [("train", "val"), ("val", "train")])
def test_half_of_ones_own_data_is_refused_before_anything_is_trained(config, tmp_path, val, capsys, given, needed):
    with_corpus(config)
    assert run(["train", "--config", str(config), "--run-dir", "run", f"--{given}", str(val)]) == 2
    said = capsys.readouterr().err
    assert f"--{needed} is needed too: made/{needed}.jsonl of the config does not exist" in said
    assert not (tmp_path / "run").exists()


def test_a_named_validation_set_that_is_not_there_is_asked_for_by_its_name(config, val):
    with_corpus(config)
    change(config, lambda trainer: trainer.update(val_data_loader={"near": trainer["val_data_loader"]}))
    with pytest.raises(UsageError, match=r"--set trainer\.val_data_loader\.near\.dataset\.manifest=\.\.\. is needed"):
        read(config, train=val)


def test_a_test_set_alone_leaves_the_corpus_of_the_config_in_place(config, val):
    with_corpus(config)
    assert read(config, test=val).corpus is not None
    assert read(config, train=val, val=val).corpus is None


def test_resuming_is_verified_on_ones_own_data(config, tmp_path, val, monkeypatch, repository, capsys):
    with_corpus(config)
    folders = [str(repository / "tests"), str(repository / "tests" / "training"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    own = [part for name in ("train", "val", "test") for part in (f"--{name}", str(val))]
    arguments = ["--kills", "0", "--keep", "kept", "--import", "matrix_parts", "--set", "trainer.epochs=1", *own]
    assert run(["verify-resume", "--config", str(config), *arguments]) == 0
    assert "EXACT: 2 steps" in capsys.readouterr().out
    for name in ("whole", "killed"):
        written = yaml.safe_load((tmp_path / "kept" / name / "config.yaml").read_text())
        assert written["corpus"] is None
        loaders = [written["trainer"][f"{each}_data_loader"] for each in ("train", "val", "test")]
        assert [loader["dataset"]["manifest"] for loader in loaders] == [str(val)] * 3
    assert not (tmp_path / "made").exists()

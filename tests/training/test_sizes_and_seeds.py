"""What a config may leave out: the sizes of the model, which follow from the data, and all seeds but one."""

from __future__ import annotations

from pathlib import Path

import matrix_parts
import pytest
import tiny  # noqa: F401  (registers its classes)
import torch
import yaml

from sonosco_like.cli import run
from sonosco_like.data import AudioDataLoader
from sonosco_like.errors import ConfigError, UsageError
from sonosco_like.models import LAS, TDS, Conformer, DeepSpeech2
from sonosco_like.serialization import Document, dumps, load, loads
from sonosco_like.training import Experiment, open_run, read_experiment
from sonosco_like.training.experiment import build_experiment
from sonosco_like.training.randomness import describe_seeds

MODELS = ("las", "deepspeech2", "tds", "conformer")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("noise")
    matrix_parts.make_corpus(folder)
    return folder


def config_of(corpus: Path, model: str = "deepspeech2", **top) -> dict:
    content = yaml.safe_load(matrix_parts.config_text(corpus, model))
    content.update(top)
    content["trainer"]["callbacks"] = []
    content["trainer"]["model"].pop("vocabulary_size")
    content["trainer"]["model"].pop("features")
    content["trainer"]["train_data_loader"].pop("seed", None)
    return content


def build(content: dict) -> Experiment:
    return build_experiment(Document.parse(yaml.safe_dump(content), "given.yaml"))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_without_sizes_is_the_one_with_the_sizes_of_the_data(name, corpus):
    given = yaml.safe_load(matrix_parts.config_text(corpus, name))["trainer"]["model"]
    content = config_of(corpus, name)
    short = build(content).trainer.model
    content["trainer"]["model"].update(vocabulary_size=given["vocabulary_size"], features=given["features"])
    whole = build(content).trainer.model
    assert (short.vocabulary_size, short.features) == (given["vocabulary_size"], given["features"])
    ours, theirs = short.state_dict(), whole.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_the_config_of_a_run_holds_the_sizes_that_were_left_out_and_is_continued_with_the_short_one(corpus, tmp_path):
    content = config_of(corpus)
    content["trainer"]["max_duration"] = "2ba"
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(content))
    folder = tmp_path / "run"
    command = ["train", "--config", str(tmp_path / "short.yaml"), "--import", "matrix_parts", "--run-dir", str(folder)]
    assert run(command) == 0
    model = yaml.safe_load((folder / "config.yaml").read_text())["trainer"]["model"]
    assert (model["vocabulary_size"], model["features"]) == (7, 6)
    assert load(folder / "final").model.is_built
    assert run([*command, "--resume", "auto", "--set", "trainer.max_duration=3ba"]) == 0
    assert load(folder / "final").global_step == 3


def test_other_data_on_the_command_line_decides_the_sizes(corpus):
    config = Document.parse(yaml.safe_dump(config_of(corpus)), "given.yaml")
    config.override(["trainer.train_data_loader.dataset.tokenizer.characters='ab cd'"])
    config.override(["trainer.train_data_loader.dataset.features={class: LogMel, mels: 17}"])
    model = build_experiment(config).trainer.model
    assert (model.vocabulary_size, model.features) == (9, 17)


@pytest.mark.parametrize("cls", [LAS, TDS, DeepSpeech2, Conformer])
def test_a_model_without_sizes_is_written_and_read_and_says_that_it_has_no_layers_yet(cls):
    model = loads(dumps(cls()), cls)
    with pytest.raises(UsageError, match="has no layers yet: give it `vocabulary_size` and `features`"):
        model.encode(torch.zeros(1, 50, 40), torch.tensor([50]))


def test_a_size_that_follows_from_nothing_is_named(corpus):
    content = config_of(corpus)
    content["trainer"]["train_data_loader"] = {"class": "tiny.Sums"}
    with pytest.raises(
        ConfigError, match=r"`model\.vocabulary_size` is left out, and the training data has no tokenizer"
    ):
        build(content)


def test_word_pieces_that_are_not_learnt_yet_say_how_they_are(corpus, tmp_path):
    pytest.importorskip("sentencepiece")
    content = config_of(corpus)
    tokenizer = {"class": "SentencePieceTokenizer", "model": str(tmp_path / "pieces.model")}
    content["trainer"]["train_data_loader"]["dataset"]["tokenizer"] = tokenizer
    with pytest.raises(
        ConfigError, match=r"follows from the tokenizer .* does not exist yet\. Learn it .* data pieces"
    ):
        build(content)


def drawn(content: dict) -> tuple[list, dict, torch.Tensor]:
    """Order, augmented features by utterance, and weights of an experiment at its start."""
    trainer = build(content).trainer
    trainer.parts.build()
    trainer.parts.prepare()
    loader = trainer.train_data_loader
    weights = torch.cat([parameter.flatten() for parameter in trainer.model.parameters()])
    heard = {}
    for batch in loader:
        for row, name in enumerate(batch.ids):
            heard[name] = batch.features_BTF[row, : batch.feature_lengths_B[row]]
    loader.set_epoch(0)
    return loader.plan.order.tolist(), heard, weights.detach()


def test_two_seeds_differ_in_order_augmentation_and_weights_and_one_seed_is_the_same_bits(corpus):
    content = config_of(corpus)
    content["trainer"]["train_data_loader"]["dataset"]["waveform_augmentations"] = []
    order, heard, weights = drawn({**content, "seed": 1})
    again = drawn({**content, "seed": 1})
    assert order == again[0]
    assert all(torch.equal(heard[name], again[1][name]) for name in heard)
    assert torch.equal(weights, again[2])
    other = drawn({**content, "seed": 2})
    assert order != other[0]
    assert heard.keys() == other[1].keys()
    assert sum(torch.equal(heard[name], other[1][name]) for name in heard) < len(heard) / 2  # masked elsewhere
    assert not torch.equal(weights, other[2])


def test_a_loader_that_names_a_seed_keeps_it(corpus):
    content = config_of(corpus)
    content["trainer"]["train_data_loader"]["seed"] = 0
    orders = [drawn({**content, "seed": seed})[0] for seed in (1, 2)]
    assert orders[0] == orders[1]


def test_a_loader_without_trainer_and_seed_draws_from_zero(corpus):
    content = config_of(corpus)["trainer"]["train_data_loader"]
    plans = [loads(yaml.safe_dump({**content, **seed}), AudioDataLoader).plan.order for seed in ({}, {"seed": 0})]
    assert plans[0].tolist() == plans[1].tolist()


def test_a_run_of_before_that_names_the_seed_of_its_loader_goes_on_with_a_config_that_does_not(corpus, tmp_path):
    content = config_of(corpus)
    content["trainer"]["max_duration"] = "2ba"
    old = yaml.safe_load(yaml.safe_dump(content))
    old["trainer"]["train_data_loader"]["seed"] = 0
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(old))
    content["trainer"]["max_duration"] = "4ba"
    (tmp_path / "new.yaml").write_text(yaml.safe_dump(content))
    folder = ["--run-dir", str(tmp_path / "run"), "--import", "matrix_parts"]
    assert run(["train", "--config", str(tmp_path / "old.yaml"), *folder]) == 0
    assert run(["train", "--config", str(tmp_path / "new.yaml"), "--resume", "auto", *folder]) == 0
    experiment, step = open_run(tmp_path / "run")
    assert step == 4
    assert experiment.trainer.train_data_loader.seed == 0


def test_which_seed_goes_where_is_said(corpus, capsys, tmp_path):
    content = config_of(corpus, seed=5)
    assert describe_seeds(build(content)) == [("weights, dropout", "5 (seed)"), ("order, augmentation", "5 (seed)")]
    content["trainer"]["train_data_loader"]["seed"] = 3
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(content))
    assert run(["check", "--config", str(tmp_path / "c.yaml"), "--import", "matrix_parts"]) == 0
    assert "order, augmentation 3 (trainer.train_data_loader.seed)" in " ".join(capsys.readouterr().out.split())
    assert read_experiment(tmp_path / "c.yaml").trainer.train_data_loader.used_seed == 3

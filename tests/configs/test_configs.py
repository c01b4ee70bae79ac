"""Every config that is shipped is read, and a scaled-down copy of it trains for two batches."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml
from foreign_weights import save_foreign, wav2vec2, whisper

from sonosco_like.data.corpora.grammar import vocabulary
from sonosco_like.data.corpora.synth import synthesize
from sonosco_like.data.text import SentencePieceTokenizer
from sonosco_like.models.pretrained import read_weights
from sonosco_like.serialization import Document, json_schema
from sonosco_like.training import read_experiment
from sonosco_like.training.optimization import describe_schedule

FOLDER = Path(__file__).parents[2] / "configs"
FILES = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml"))
CONFIGS = [name for name in FILES if not name.endswith("common")]  # a base is no config by itself
PIECES = 40
PRETRAINED = {
    "finetune/wav2vec2": wav2vec2,
    "finetune/whisper": lambda: whisper(max_source_positions=1500),
}
SCALED_DOWN = {
    "librispeech/las": [
        "encoder.hidden_size=16",
        "attention_decoder.hidden_size=24",
        "attention_decoder.attention.size=16",
    ],
    "librispeech/tds": [f"encoder.groups[{group}].{part}" for group in range(3) for part in ("channels=2", "blocks=1")],
    "librispeech/deepspeech2": ["encoder.hidden_size=16", "encoder.layers=2"],
    "librispeech/conformer": ["encoder.size=16", "encoder.layers=2", "encoder.channels=8"],
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A minute of speech, and word pieces for it."""
    folder = tmp_path_factory.mktemp("corpus") / "digits"
    synthesize(folder, minutes=1.0, workers=1)
    SentencePieceTokenizer.train([" ".join(sorted(vocabulary("digits")))] * 9, folder / "pieces.model", PIECES)
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Tiny folders as others publish them."""
    folder = tmp_path_factory.mktemp("weights")
    return {name: save_foreign(make(), folder / name) for name, make in PRETRAINED.items()}


def overrides(name, corpus, weights):
    """What makes a config small and lets it hear the corpus, as --set would."""
    dataset = Document.read(FOLDER / f"{name}.yaml").get("trainer.train_data_loader.dataset")
    changes = [f"trainer.{n}_data_loader.dataset.manifest={corpus / n}.jsonl" for n in ("train", "val")]
    changes += [f"trainer.train_data_loader.sampler.{limit}" for limit in ("batch_size=4", "batch_seconds=60")]
    changes += ["trainer.train_data_loader.num_workers=0", "trainer.val_data_loader.num_workers=0"]
    changes += ["trainer.max_duration=2ba"]
    if dataset["tokenizer"]["class"] == "SentencePieceTokenizer":
        changes.append(f"trainer.train_data_loader.dataset.tokenizer.model={corpus / 'pieces.model'}")
    if name in weights:
        sizes = {key: value for key, value in read_weights(weights[name]).encoder_fields.items() if key != "class"}
        changes += [f"init_from={weights[name]}", *(f"trainer.model.encoder.{key}={sizes[key]}" for key in sizes)]
    return changes + [f"trainer.model.{change}" for change in SCALED_DOWN.get(name, [])]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_trains(name, corpus, weights, tmp_path):
    experiment = read_experiment(FOLDER / f"{name}.yaml", overrides(name, corpus, weights))
    experiment.corpus = None
    assert experiment.start(tmp_path / "run") == 0
    assert experiment.trainer.global_step == 2
    assert experiment.trainer.performance_measures["loss"] > 0
    assert (tmp_path / "run" / "final" / "state.yaml").exists()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_fits_the_schema_that_editors_use(name):
    jsonschema.Draft202012Validator(json_schema()).validate(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_leaves_out_what_follows_from_the_data(name, corpus, weights):
    text = (FOLDER / f"{name}.yaml").read_text()
    for left_out in ("vocabulary_size", "test_data_loader", " features: 4", " features: 8"):
        assert left_out not in text
    experiment = read_experiment(FOLDER / f"{name}.yaml", overrides(name, corpus, weights))
    trainer, dataset = experiment.trainer, experiment.trainer.train_data_loader.dataset
    assert trainer.model.vocabulary_size == dataset.tokenizer.size
    assert trainer.model.features == dataset.features.size
    assert trainer.train_data_loader.seed is None
    assert trainer.val_data_loader.dataset.tokenizer is dataset.tokenizer
    assert trainer.val_data_loader.dataset.features is dataset.features
    assert trainer.test_data_loader is None


@pytest.mark.parametrize("name", [name for name in CONFIGS if "/" not in name and name != "smoke"])
def test_a_small_config_is_the_model_and_how_it_learns_in_thirty_lines(name):
    lines = [line for line in (FOLDER / f"{name}.yaml").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "base: common.yaml"
    assert len(lines) <= 27
    assert "dur, total: 1dur}" in lines[-1]


@pytest.mark.parametrize("name", [name for name in CONFIGS if "/" not in name and name != "smoke"])
def test_the_schedule_of_a_small_config_is_as_long_as_its_training_on_any_corpus(name, corpus, weights):
    sets = [each for each in overrides(name, corpus, weights) if "max_duration" not in each]
    for batch_size in (4, 1):  # a corpus is four times as long in batches
        trainer = read_experiment(
            FOLDER / f"{name}.yaml", [*sets, f"trainer.train_data_loader.sampler.batch_size={batch_size}"]
        ).trainer
        trainer.callbacks = []
        whole = trainer.epochs * len(trainer.train_data_loader)
        assert describe_schedule(trainer).endswith(f"total 1dur = {whole:,} steps")
        trainer.parts.build()
        trainer.parts.prepare()
        schedule = trainer.scheduler.lr_lambdas[0]
        assert 0 < schedule(0) < 1 == schedule(whole // 3)
        assert schedule(whole) == pytest.approx(0.01)

"""Every config that is shipped is read, and a scaled-down copy of it trains for two batches."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from sonosco_like.data.corpora.synth import synthesize
from sonosco_like.serialization import json_schema
from sonosco_like.training import read_experiment

CONFIGS = sorted((Path(__file__).parents[2] / "configs").rglob("*.yaml"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A minute of speech."""
    folder = tmp_path_factory.mktemp("corpus") / "digits"
    synthesize(folder, minutes=1.0, workers=1)
    return folder


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_a_config_trains(config, corpus, tmp_path):
    manifests = [f"trainer.{n}_data_loader.dataset.manifest={corpus / n}.jsonl" for n in ("train", "val")]
    small = ["trainer.train_data_loader.num_workers=0", "trainer.train_data_loader.sampler.batch_size=4"]
    experiment = read_experiment(
        config, [*manifests, *small, "trainer.max_duration=2ba", "trainer.test_data_loader=null"]
    )
    experiment.corpus = None
    assert experiment.start(tmp_path / "run") == 0
    assert experiment.trainer.global_step == 2
    assert experiment.trainer.performance_measures["loss"] > 0
    assert (tmp_path / "run" / "final" / "state.yaml").exists()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_a_config_fits_the_schema_that_editors_use(config):
    jsonschema.Draft202012Validator(json_schema()).validate(yaml.safe_load(config.read_text()))

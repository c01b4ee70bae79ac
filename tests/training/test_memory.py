"""Which batches fit into memory: the largest of each length are found, tried, and taken back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matrix_parts import config_text, make_corpus
from tiny import make_trainer

from sonosco_like.cli import run
from sonosco_like.data.sampling import BucketSampler
from sonosco_like.process import available_memory
from sonosco_like.training.speech_checks import Trial, expected_need, remedy
from sonosco_like.training.verification import compare_runs

MEGA = 10**6
on_linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")


@pytest.mark.parametrize(
    "settings", [{"batch_size": 8}, {"batch_seconds": 60.0}, {"batch_seconds": 90, "batch_size": 7}]
)
def test_no_batch_of_any_epoch_is_larger_than_the_largest_of_its_bucket(settings):
    durations = np.random.default_rng(0).gamma(3.0, 2.0, 500) + 0.5
    sampler = BucketSampler(**settings)
    largest = [durations[batch].max() * len(batch) for batch in sampler.largest_batches(durations)]
    for epoch in range(3):
        assert sampler.plan(durations, 0, epoch).padded_seconds.max() <= max(largest) + 1e-9
    lengths = [durations[batch].max() for batch in sampler.largest_batches(durations)]
    assert lengths == sorted(lengths)
    assert lengths[-1] == durations.max()


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_the_need_of_a_longer_batch_follows_from_that_of_shorter_ones(power):
    tried = [Trial(8, seconds, 5 * MEGA * (8 * seconds) ** power) for seconds in (2.0, 3.0)]
    assert expected_need(tried, 8, 9.0) == pytest.approx(5 * MEGA * 72.0**power)
    assert expected_need([], 8, 9.0) == 0.0


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (BucketSampler(batch_size=16), "Set `sampler.batch_size` to 5"),
        (BucketSampler(batch_seconds=160.0), "Set `sampler.batch_seconds` to 56"),
        (BucketSampler(batch_seconds=500.0, batch_size=16), "Set `sampler.batch_size` to 5"),
    ],
)
def test_the_remedy_is_the_setting_that_limits_the_batches(sampler, words):
    assert remedy(Trial(16, 10.0, 400.0 * MEGA), 200.0 * MEGA, sampler).startswith(words)


def test_a_single_utterance_that_does_not_fit_must_be_shorter():
    said = remedy(Trial(2, 10.0, 400.0 * MEGA), 100.0 * MEGA, BucketSampler(batch_size=2))
    assert "Not even one utterance of 10.0 s fits: set `max_duration:" in said
    assert float(re.search(r"max_duration: ([\d.]+)", said)[1]) < 10.0


@on_linux
def test_a_limit_of_the_process_limits_the_memory_that_is_available():
    code = (
        "import resource, sys; from sonosco_like.process import available_memory\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + 50_000_000, -1)); print(available_memory())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 0 < int(printed) <= 50_000_000
    assert available_memory() > 0


WIDE = ["--set", "trainer.model.encoder.hidden_size=256", "--set", "trainer.train_data_loader.sampler.batch_size=32"]


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A complete small config, with utterances of two very different lengths."""
    monkeypatch.chdir(tmp_path)
    make_corpus(tmp_path / "noise")
    (tmp_path / "config.yaml").write_text(config_text(Path("noise"), "deepspeech2"))
    return tmp_path


@on_linux
def test_what_does_not_fit_is_refused_before_the_training_and_the_advice_fits(config):
    import soundfile

    rows = []
    for place, seconds in enumerate([1.0] * 32 + [10.0] * 32):
        name = f"long-{seconds:.0f}.wav"
        soundfile.write(config / name, np.random.default_rng(0).normal(0, 0.1, int(16000 * seconds)), 16000)
        rows.append(json.dumps({"audio_filepath": name, "duration": seconds, "text": "a b", "id": str(place)}))
    (config / "long.jsonl").write_text("\n".join(rows) + "\n")
    own = ["--train", "long.jsonl", "--import", "matrix_parts", *WIDE]

    code, said = limited(["check", "--config", "config.yaml", "--open", "none", *own])
    assert code == 2, said
    found = re.search(r"Batches of 32 x 10.0 s do not fit .* Set `sampler.batch_size` to (\d+)", said)
    assert found, said
    assert "largest batch of each length\n  32 x 1.0 s" in said

    code, said = limited(["train", "--config", "config.yaml", "--run-dir", "run", *own])
    assert code == 2, said
    assert "Out of memory on the largest batch, 32 utterances of up to 10.0 s, which was tried before" in said
    assert not (config / "run" / "config.yaml").exists()

    smaller = ["--set", f"trainer.train_data_loader.sampler.batch_size={found[1]}"]
    code, said = limited(["check", "--config", "config.yaml", "--open", "none", *own, *smaller])
    assert code == 0, said


def limited(arguments: list[str]) -> tuple[int, str]:
    """A command that may take 500 MB more than it has after its start."""
    code = (
        "import resource, sys\nimport sonosco_like.catalog, torch\nfrom sonosco_like.cli import main\n"
        "torch.nn.Linear(64, 64)(torch.randn(64, 64)).sum().backward()\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + 500_000_000, -1))\nmain(sys.argv[1:])"
    )
    here = str(Path(__file__).parent)
    path = f"{here}:{Path(here).parent}"
    environment = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("model", ["las", "deepspeech2"])
def test_trying_the_largest_batch_first_changes_no_bit_of_the_run(config, model, monkeypatch):
    (config / "config.yaml").write_text(config_text(Path("noise"), model))
    train = ["train", "--config", "config.yaml", "--import", "matrix_parts", "--set", "trainer.epochs=2"]
    assert run([*train, "--run-dir", "tried"]) == 0
    monkeypatch.setattr("sonosco_like.training.speech_checks.try_largest_first", lambda trainer: None)
    assert run([*train, "--run-dir", "plain"]) == 0
    assert compare_runs(Path("plain"), Path("tried")) == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "a loader of the class Sums does not say which of its batches is the largest"),
        ({"compile": "eager"}, "a compiled model needs another amount of memory"),
    ],
)
def test_a_run_that_does_not_try_its_largest_batch_says_why_once(settings, reason, caplog):
    trainer = make_trainer(**settings, epochs=1)
    with caplog.at_level("INFO"):
        trainer.start_training()
        trainer.epochs = 2
        trainer.continue_training()
    said = [record.getMessage() for record in caplog.records if "largest batch" in record.getMessage()]
    assert said == [f"The largest batch is not tried before the training, because {reason}."]

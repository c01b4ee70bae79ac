"""A recogniser that works, trained once per test run on speech made on the spot, for everything that uses one."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sonosco_like.data import AudioDataLoader, AudioDataset, BucketSampler
from sonosco_like.data.corpora.synth import synthesize
from sonosco_like.data.features import LogMel
from sonosco_like.data.workers import one_thread
from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.losses import CTCLoss
from sonosco_like.models import DeepSpeech2, DeepSpeech2Encoder, SpectrogramConvolution
from sonosco_like.optim import AdamW, WarmupHoldDecay
from sonosco_like.training import Experiment, ModelTrainer, seed_everything


def loader(manifest: Path, **options) -> AudioDataLoader:
    dataset = AudioDataset(manifest=manifest, features=LogMel(mels=24))
    return AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=4, **options))


@dataclass(frozen=True)
class Digits:
    """A run, and the corpus it was trained on: it hears most of `train`, and hardly more than a guess of `test`."""

    run: Path
    corpus: Path

    @property
    def train(self) -> Path:
        return self.corpus / "train.jsonl"

    @property
    def test(self) -> Path:
        return self.corpus / "test.jsonl"

    def rows(self, manifest: str = "train.jsonl") -> list[dict]:
        return [json.loads(line) for line in (self.corpus / manifest).read_text().splitlines()]

    def audio(self, row: dict) -> Path:
        return self.corpus / row["audio_filepath"]


@pytest.fixture(scope="session")
def digits(tmp_path_factory, worker_id) -> Digits:
    """Trained by whoever asks first; the other processes of this test run wait for it."""
    folder = shared_folder(tmp_path_factory, worker_id, "digits")
    make_once(folder / "run" / "final", lambda: train(folder))
    return Digits(folder / "run", folder / "corpus")


def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str, name: str) -> Path:
    """A folder that all processes of this test run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / name
    folder.mkdir(exist_ok=True)
    return folder


def make_once(result: Path, make: Callable[[], object]) -> Path:
    """Have a file or folder made by whichever process of this test run asks first; the others wait for it."""
    with result.parent.with_name(f"{result.parent.name}.lock").open("w") as lock:  # a run begins in an empty folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            make()
    return result


def train(folder: Path, minutes: float = 3.0, epochs: int = 28) -> Path:
    """Corpus and run in a folder; less than a minute on one processor."""
    synthesize(folder / "corpus", kind="digits", minutes=minutes, variety=0.0, seed=3, workers=1)
    seed_everything(1)
    convolutions = [
        SpectrogramConvolution(channels=8, time_kernel=5, frequency_kernel=5, time_stride=2),
        SpectrogramConvolution(channels=8, time_kernel=5, frequency_kernel=5, time_stride=2),
    ]
    encoder = DeepSpeech2Encoder(cell="gru", hidden_size=96, layers=1, convolutions=convolutions)
    trainer = ModelTrainer(
        model=DeepSpeech2(vocabulary_size=32, features=24, encoder=encoder),
        loss=CTCLoss(),
        epochs=epochs,
        train_data_loader=loader(folder / "corpus" / "train.jsonl"),
        decoder=GreedyCTCDecoder(),
        optimizer=AdamW(lr=0.005),
        scheduler=WarmupHoldDecay(warmup=40, hold="0.6dur", total="1dur"),
        clip_grads=5.0,
        test_step=None,
    )
    with one_thread():
        Experiment(name="digits", trainer=trainer).start(folder / "run")
    return folder

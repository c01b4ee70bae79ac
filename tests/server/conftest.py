"""Two small recognisers, and real servers of them in processes of their own."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from server_process import Running, start_server
from trained_runs import Digits, digits  # noqa: F401

from sonosco_like.data import AudioDataLoader, AudioDataset, BucketSampler
from sonosco_like.data.features import LogMel
from sonosco_like.data.manifest import Manifest, write_manifest
from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.losses import CTCLoss
from sonosco_like.models import DeepSpeech2, DeepSpeech2Encoder, SpectrogramConvolution
from sonosco_like.optim import AdamW
from sonosco_like.training import Experiment, ModelTrainer, seed_everything

pytest.importorskip("fastapi", reason="the server is not installed: pip install '.[serve]'")
pytest.importorskip("av")


@pytest.fixture(scope="session")
def other(digits: Digits) -> Path:  # noqa: F811
    """A run of another model at another sample rate, which hears little; trained by whoever asks first."""
    folder = digits.run.parent / "other"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "run" / "final").is_dir():
            _train_other(digits.train, folder)
    return folder / "run"


def _train_other(manifest: Path, folder: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = Manifest.read(manifest)
    write_manifest(folder / "few.jsonl", list(rows)[:12])
    seed_everything(2)
    encoder = DeepSpeech2Encoder(
        cell="gru", hidden_size=24, layers=1,
        convolutions=[SpectrogramConvolution(channels=4, time_kernel=5, frequency_kernel=5, time_stride=2)],
    )  # fmt: skip
    dataset = AudioDataset(manifest=folder / "few.jsonl", features=LogMel(mels=24, sample_rate=8000))
    trainer = ModelTrainer(
        model=DeepSpeech2(vocabulary_size=32, features=24, encoder=encoder),
        loss=CTCLoss(),
        epochs=8,
        train_data_loader=AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=4)),
        decoder=GreedyCTCDecoder(),
        optimizer=AdamW(lr=0.01),
        test_step=None,
    )
    Experiment(name="other", trainer=trainer).start(folder / "run")
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def server(digits: Digits, other: Path, tmp_path_factory) -> Iterator[Running]:  # noqa: F811
    """A server of both recognisers for all tests that do it no harm."""
    running = start_server(
        tmp_path_factory.mktemp("server") / "log", f"digits={digits.run}", f"other={other}", "--max-seconds", 20
    )
    yield running
    running.stop()


@pytest.fixture
def serve(tmp_path) -> Iterator[Callable[..., Running]]:
    """Start servers of one's own."""
    started: list[Running] = []

    def start(*arguments: object, **environment: str) -> Running:
        started.append(start_server(tmp_path / f"server-{len(started)}.log", *arguments, **environment))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.stop()

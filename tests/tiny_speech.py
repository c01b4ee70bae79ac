"""A real training that costs nothing: a small recogniser, and utterances of noise made when they are asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tiny import PlacedBatches, SaveAt, make_trainer

from sonosco_like.data.text import Alphabet
from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.losses import JointLoss
from sonosco_like.metrics import DecodedBatch, Sums, metric, token_accuracy, word_error_rate
from sonosco_like.models import KeyValueDecoder, Recogniser, TDSEncoder, TDSGroup
from sonosco_like.records import Batch
from sonosco_like.serialization import diff, load, serializable
from sonosco_like.training import ModelTrainer, seed_everything

FEATURES = 6
TOKENIZER = Alphabet(characters="ab ")
TEXTS = ["a b", "ab a", "b", "ba", "a ab", "b b"]


@serializable
class Utterances(PlacedBatches):
    """Two utterances a batch; several processes share the batches."""

    batches: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dataset = SimpleNamespace(tokenizer=TOKENIZER)
        self.rank, self.world_size = 0, 1

    def __len__(self) -> int:
        return self.batches

    def distribute(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size

    def batch(self, epoch: int, position: int) -> Batch:
        return make_batch(self.seed + 1000 * epoch + position * self.world_size + self.rank)


def make_batch(number: int) -> Batch:
    """Batch of two utterances that belong to a number."""
    generator = torch.Generator().manual_seed(number)
    texts = [TEXTS[(2 * number + row) % len(TEXTS)] for row in range(2)]
    labels = [torch.tensor(TOKENIZER.encode(text)) for text in texts]
    lengths_B = torch.tensor([12, 10])
    features_BTF = torch.randn(2, 12, FEATURES, generator=generator)
    features_BTF[1, 10:] = 0.0
    return Batch(
        features_BTF=features_BTF,
        feature_lengths_B=lengths_B,
        labels_BU=torch.nn.utils.rnn.pad_sequence(labels, batch_first=True),
        label_lengths_B=torch.tensor([len(each) for each in labels]),
        ids=[f"u{number}-{row}" for row in range(2)],
        texts=texts,
        durations=[1.2, 1.0],
    )


def make_model(**fields: Any) -> Recogniser:
    """A recogniser with everything a callback may look at: layers, dropout, CTC, attention with a soft window."""
    encoder = TDSEncoder(groups=[TDSGroup(channels=1, blocks=1, kernel=3, stride=1)], dropout=0.1, norm_over="frame")
    given = {"encoder": encoder, "attention_decoder": KeyValueDecoder(size=4, window_sigma=2.0), "ctc": True}
    return Recogniser(**{"vocabulary_size": len(TOKENIZER.symbols), "features": FEATURES, **given, **fields})


def speech_trainer(*callbacks: Any, **fields: Any) -> ModelTrainer:
    """A trainer of three epochs of four batches, which validates every two batches; `fields` change that."""
    seed_everything(1)
    given: dict[str, Any] = {
        "model": make_model(),
        "loss": JointLoss(),
        "epochs": 3,
        "train_data_loader": Utterances(),
        "val_data_loader": Utterances(batches=2, seed=7),
        "decoder": GreedyCTCDecoder(),
        "scheduler": None,
        "metrics": [word_error_rate, token_accuracy],
        "callbacks": list(callbacks),
        "test_step": 2,
    }
    return make_trainer(**{**given, **fields})


def whole_and_resumed(at: int, folder: Path, *callbacks: Any, **fields: Any) -> tuple[ModelTrainer, ModelTrainer]:
    """A training that went through, and the same one continued from the checkpoint it wrote after `at` batches."""
    path = folder / f"at-{at}"
    whole = speech_trainer(*callbacks, SaveAt(at=at, path=path), **fields)
    whole.start_training()
    resumed = load(path)
    resumed.continue_training()
    return whole, resumed


@metric(lower_is_better=True, over="batches")
def constant_error(judged: DecodedBatch) -> Sums:
    """A measure that never changes."""
    return Sums(1.0, 1.0)


@metric(lower_is_better=False, over="batches")
def constant_score(judged: DecodedBatch) -> Sums:
    """A measure that never changes, of which more is better."""
    return Sums(0.5, 1.0)


def logged(trainer: ModelTrainer) -> list[tuple[int, dict[str, Any]]]:
    """Have a trainer note what is logged from now on: pairs of step and values."""
    rows: list[tuple[int, dict[str, Any]]] = []
    trainer.add_callback(("log", lambda moment: rows.append((moment.args["step"], moment.args["values"]))))
    return rows


def differences(a: ModelTrainer, b: ModelTrainer) -> list[str]:
    """Where two trainers differ, apart from the clock."""
    return [each.path for each in diff(a, b) if each.path != "state.position.seconds"]

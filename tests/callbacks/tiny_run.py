"""A real training that costs nothing: a small recogniser, and utterances of noise made when they are asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from placed_batches import PlacedBatches

from sonosco_like.data.text import Alphabet
from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.events import AbstractCallback
from sonosco_like.losses import JointLoss
from sonosco_like.metrics import Judged, Sums, metric, token_accuracy, word_error_rate
from sonosco_like.models import KeyValueDecoder, Recogniser, TDSEncoder, TDSGroup
from sonosco_like.optim import AdamW
from sonosco_like.records import Batch
from sonosco_like.serialization import diff, load, serializable
from sonosco_like.training import ModelTrainer, seed_everything

FEATURES = 6
TOKENIZER = Alphabet(characters="ab ")
TEXTS = ["a b", "ab a", "b", "ba", "a ab", "b b"]


@serializable
class TinyLoader(PlacedBatches):
    """Two utterances a batch."""

    batches: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dataset = SimpleNamespace(tokenizer=TOKENIZER)

    def __len__(self) -> int:
        return self.batches

    def batch(self, epoch: int, position: int) -> Batch:
        return make_batch(self.seed + 1000 * epoch + position)


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


def make_model() -> Recogniser:
    """A recogniser with everything a callback may look at: layers, dropout, CTC, attention with a soft window."""
    encoder = TDSEncoder(groups=[TDSGroup(channels=1, blocks=1, kernel=3, stride=1)], dropout=0.1, norm_over="frame")
    decoder = KeyValueDecoder(size=4, window_sigma=2.0)
    return Recogniser(
        vocabulary_size=len(TOKENIZER.symbols), features=FEATURES, encoder=encoder, decoder=decoder, ctc=True
    )


def make_trainer(*callbacks: Any, **fields: Any) -> ModelTrainer:
    """A trainer of three epochs of four batches, which validates every two batches; `fields` change that."""
    seed_everything(1)
    return ModelTrainer(
        **{
            "model": make_model(),
            "loss": JointLoss(),
            "epochs": 3,
            "train_data_loader": TinyLoader(),
            "val_data_loader": TinyLoader(batches=2, seed=7),
            "decoder": GreedyCTCDecoder(),
            "optimizer": AdamW(lr=0.01),
            "metrics": [word_error_rate, token_accuracy],
            "callbacks": list(callbacks),
            "test_step": 2,
            **fields,
        }
    )


@serializable
class SaveAt(AbstractCallback):
    """Saves the trainer when so many batches are done; hears after all others."""

    at: int
    path: Path
    order: int = 10_000

    def __call__(self, epoch: int, step: int, performance_measures: Any, context: Any) -> None:
        if context.global_step == self.at:
            context.save_checkpoint(self.path)


def whole_and_resumed(at: int, folder: Path, *callbacks: Any, **fields: Any) -> tuple[ModelTrainer, ModelTrainer]:
    """A training that went through, and the same one continued from the checkpoint it wrote after `at` batches."""
    path = folder / f"at-{at}"
    whole = make_trainer(*callbacks, SaveAt(at=at, path=path), **fields)
    whole.start_training()
    resumed = load(path)
    resumed.continue_training()
    return whole, resumed


@metric(lower_is_better=True, over="batches")
def constant_error(judged: Judged) -> Sums:
    """A measure that never changes."""
    return Sums(1.0, 1.0)


@metric(lower_is_better=False, over="batches")
def constant_score(judged: Judged) -> Sums:
    """A measure that never changes, of which more is better."""
    return Sums(0.5, 1.0)


def logged(trainer: ModelTrainer) -> list[tuple[int, dict[str, Any]]]:
    """Have a trainer note what is logged from now on: pairs of step and values."""
    rows: list[tuple[int, dict[str, Any]]] = []
    trainer.add_callback(("log", lambda moment: rows.append((moment.args["step"], moment.args["values"]))))
    return rows


def differences(a: ModelTrainer, b: ModelTrainer) -> list[str]:
    """Where two trainers differ, apart from the clock."""
    return [each.path for each in diff(a, b) if each.path != "state.seconds"]

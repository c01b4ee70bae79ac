"""Two small trainings for the five texts: one of pictures with foreign parts only, one of speech with our own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from placed_batches import PlacedBatches
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sonosco_like import ModelTrainer, serializable
from sonosco_like.data.text import Alphabet
from sonosco_like.decoding import GreedyCTCDecoder
from sonosco_like.losses import CTCLoss
from sonosco_like.metrics import word_error_rate
from sonosco_like.models import Recogniser, TDSEncoder, TDSGroup
from sonosco_like.optim import SGD, AdamW, LinearLR
from sonosco_like.records import Batch
from sonosco_like.training import seed_everything

BATCH, CLASSES = 8, 3
TOKENIZER = Alphabet(characters="ab ")
TEXTS = ["a b", "ab a", "b", "ba"]


def pictures(count: int, seed: int) -> DataLoader:
    """Grey pictures of 28 x 28 with a class that can be seen, in torch's own loader."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(count) % CLASSES
    noise = torch.rand(count, 1, 28, 28, generator=generator)
    return DataLoader(TensorDataset(noise + classes.view(-1, 1, 1, 1), classes), batch_size=BATCH)


def picture_trainer(*callbacks: Any, cls: type[ModelTrainer] = ModelTrainer, **fields: Any) -> ModelTrainer:
    """Two epochs of three batches with torch's parts; validates at the ends of epochs."""
    seed_everything(1)
    given: dict[str, Any] = {
        "model": nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, CLASSES)),
        "loss": nn.CrossEntropyLoss(),
        "epochs": 2,
        "train_data_loader": pictures(3 * BATCH, seed=0),
        "val_data_loader": pictures(2 * BATCH, seed=1),
        "optimizer": SGD(lr=0.001),
        "callbacks": list(callbacks),
        "test_step": None,
    }
    return cls(**{**given, **fields})


@serializable
class Speech(PlacedBatches):
    """Two utterances of noise a batch, the same in every epoch."""

    batches: int = 3
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
        return utterances(self.seed + position * self.world_size + self.rank)


def utterances(number: int) -> Batch:
    """The two utterances that belong to a number."""
    texts = [TEXTS[(2 * number + row) % len(TEXTS)] for row in range(2)]
    labels = [torch.tensor(TOKENIZER.encode(text)) for text in texts]
    return Batch(
        features_BTF=torch.randn(2, 12, 6, generator=torch.Generator().manual_seed(number)),
        feature_lengths_B=torch.tensor([12, 12]),
        labels_BU=nn.utils.rnn.pad_sequence(labels, batch_first=True),
        label_lengths_B=torch.tensor([len(each) for each in labels]),
        ids=[f"u{number}-{row}" for row in range(2)],
        texts=texts,
        durations=[0.12, 0.12],
    )


def speech_trainer(*callbacks: Any, cls: type[ModelTrainer] = ModelTrainer, **fields: Any) -> ModelTrainer:
    """Two epochs of three batches with our own parts; validates at the ends of epochs."""
    seed_everything(1)
    encoder = TDSEncoder(groups=[TDSGroup(channels=1, blocks=1, kernel=3, stride=1)], norm_over="frame")
    given: dict[str, Any] = {
        "model": Recogniser(vocabulary_size=len(TOKENIZER.symbols), features=6, encoder=encoder, ctc=True),
        "loss": CTCLoss(),
        "epochs": 2,
        "train_data_loader": Speech(),
        "val_data_loader": Speech(batches=1, seed=50),
        "test_data_loader": Speech(batches=2, seed=70),
        "decoder": GreedyCTCDecoder(),
        "optimizer": AdamW(lr=0.01),
        "scheduler": LinearLR(),
        "metrics": [word_error_rate],
        "callbacks": list(callbacks),
        "test_step": None,
    }
    return cls(**{**given, **fields})

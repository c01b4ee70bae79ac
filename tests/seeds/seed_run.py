"""Two small trainings for the five texts: one of pictures with foreign parts only, one of speech with our own."""

from __future__ import annotations

from typing import Any

import torch
from tiny import make_trainer
from tiny_speech import Utterances, make_model, speech_trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sonosco_like import ModelTrainer
from sonosco_like.losses import CTCLoss
from sonosco_like.metrics import word_error_rate
from sonosco_like.optim import SGD, LinearLR
from sonosco_like.training import seed_everything

BATCH, CLASSES = 8, 3


def pictures(count: int, seed: int) -> DataLoader:
    """Grey pictures of 28 x 28 with a class that can be seen, in torch's own loader."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(count) % CLASSES
    noise = torch.rand(count, 1, 28, 28, generator=generator)
    return DataLoader(TensorDataset(noise + classes.view(-1, 1, 1, 1), classes), batch_size=BATCH)


def picture_trainer(*callbacks: Any, **fields: Any) -> ModelTrainer:
    """Two epochs of three batches with torch's parts; validates at the ends of epochs."""
    seed_everything(1)
    given: dict[str, Any] = {
        "model": nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, CLASSES)),
        "loss": nn.CrossEntropyLoss(),
        "epochs": 2,
        "train_data_loader": pictures(3 * BATCH, seed=0),
        "val_data_loader": pictures(2 * BATCH, seed=1),
        "optimizer": SGD(lr=0.001),
        "scheduler": None,
        "callbacks": list(callbacks),
        "test_step": None,
    }
    return make_trainer(**{**given, **fields})


def ctc_trainer(*callbacks: Any, **fields: Any) -> ModelTrainer:
    """Two epochs of three batches with our own parts; validates at the ends of epochs."""
    seed_everything(1)
    given: dict[str, Any] = {
        "model": make_model(attention_decoder=None),
        "loss": CTCLoss(),
        "epochs": 2,
        "train_data_loader": Utterances(batches=3),
        "val_data_loader": Utterances(batches=1, seed=50),
        "test_data_loader": Utterances(batches=2, seed=70),
        "scheduler": LinearLR(),
        "metrics": [word_error_rate],
        "test_step": None,
    }
    return speech_trainer(*callbacks, **{**given, **fields})

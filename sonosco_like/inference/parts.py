"""The parts of a saved trainer that hear, with the weights it is used with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from sonosco_like.data.features import FeatureExtractor
from sonosco_like.data.normalization import Normalization
from sonosco_like.data.text import TextCleaner, Tokenizer
from sonosco_like.decoding import Decoder
from sonosco_like.errors import UsageError
from sonosco_like.inference.saved import SavedTrainer
from sonosco_like.inference.weights import use_weights

LOADERS = ("train_data_loader", "val_data_loader", "test_data_loader")
_OF_DATA = {
    "features": FeatureExtractor | None,
    "normalization": Normalization | None,
    "tokenizer": Tokenizer | None,
    "cleaner": TextCleaner | None,
    "max_duration": float | None,
}


@dataclass(frozen=True)
class Parts:
    """Whoever uses a run, transcribes with it or exports it takes these: so all of them hear the same."""

    model: Any
    decoder: Decoder | None
    weights: str
    features: FeatureExtractor | None = None
    normalization: Normalization | None = None
    tokenizer: Tokenizer | None = None
    cleaner: TextCleaner | None = None
    max_duration: float | None = None


def read_parts(saved: SavedTrainer) -> Parts:
    """The parts of a saved trainer; those of the data are of the first loader whose dataset has a tokenizer."""
    if not saved.has("model"):
        raise UsageError(f"{saved.folder} cannot be used to transcribe: it must hold a trainer with a `model`.")
    loader = next((name for name in LOADERS if saved.has(f"{name}.dataset.tokenizer")), None)
    of_data = {f"{loader}.dataset.{name}": kind for name, kind in _OF_DATA.items() if loader is not None}
    present = {path: kind for path, kind in of_data.items() if saved.has(path)}
    model, decoder, *rest = saved.read({"model": nn.Module, "decoder": Decoder | None, **present})
    found = {path.rpartition(".")[2]: part for path, part in zip(present, rest, strict=True)}
    return Parts(model=model, decoder=decoder, weights=use_weights(model, saved), **found)

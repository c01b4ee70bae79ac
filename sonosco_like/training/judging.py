"""What a model makes of data it does not learn from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Prediction:
    """An utterance, what was said in it, and what the model heard."""

    id: str
    reference: str
    hypothesis: str


@contextmanager
def judging(model: nn.Module) -> Iterator[None]:
    """Have a model work without learning; each part goes back to the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def from_the_beginning(loader: Any) -> Iterator[Any]:
    """A loader at its first batch; where it was before is its place again afterwards."""
    place = loader.state_dict() if hasattr(loader, "state_dict") else None
    if hasattr(loader, "seek"):
        loader.seek(0)
    try:
        yield loader
    finally:
        if place is not None:
            loader.load_state_dict(place)

"""What a model makes of data it does not learn from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from sonosco_like.metrics import Judged


@dataclass(frozen=True, slots=True)
class Prediction:
    """An utterance, what was said in it, and what the model heard.

    Of data that is no speech: the number of an example, its target, and what the model made of it.
    """

    id: str
    reference: Any
    hypothesis: Any


def as_judged(made: Any, output: Any, batch: Any) -> Judged:
    """What `predict_batch` returned in the form in which metrics read it."""
    return made if isinstance(made, Judged) else Judged(batch, output, predicted=made)


def predictions_of(judged: Judged, first: int) -> list[Prediction]:
    """A prediction for each example of a batch, numbered from `first` on where they have no ids."""
    if judged.hypothesis_texts is not None:
        rows = zip(judged.batch.ids, judged.references, judged.hypotheses, strict=True)
        return [Prediction(*row) for row in rows]
    made, targets = judged.examples
    ids = getattr(judged.batch, "ids", None) or [str(first + number) for number in range(len(made))]
    return [Prediction(*row) for row in zip(ids, targets, made, strict=True)]


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
    elif hasattr(loader, "rewind"):
        loader.rewind()
    try:
        yield loader
    finally:
        if place is not None:
            loader.load_state_dict(place)

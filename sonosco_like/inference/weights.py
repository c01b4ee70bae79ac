"""Which weights a trained model is used with: the one place where this is decided."""

from __future__ import annotations

from torch import nn

from sonosco_like.inference.saved import SavedTrainer


def use_averaged_weights(model: nn.Module, saved: SavedTrainer) -> str:
    """Give a model the moving average of its weights if the trainer kept one; returns which weights it has now."""
    averaged = saved.tensors_of("WeightAverage", "weights")
    if averaged:
        model.load_state_dict(averaged)
    return "averaged" if averaged else "last"

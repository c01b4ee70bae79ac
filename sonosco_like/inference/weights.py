"""Which weights a trained model is used with: the one place where this is decided."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from sonosco_like.inference.saved import SavedTrainer

AVERAGED, LAST = "averaged", "last"


def use_weights(model: nn.Module, saved: SavedTrainer) -> str:
    """Give a model the weights that a saved trainer is used with; returns which they are: `averaged` or `last`."""
    averaged = averaged_weights(saved)
    if averaged:
        model.load_state_dict(averaged)
    return AVERAGED if averaged else saved.text("weights") or LAST


def averaged_weights(saved: SavedTrainer) -> dict[str, Tensor]:
    """The moving average of the weights, if the trainer kept one and is used with it; else nothing.

    It is, unless the checkpoint is the best by a measure of the weights themselves. Runs from before this was taken
    down are used with the average in any case.
    """
    return {} if _is_used_plain(saved.state("used_weights"), saved) else saved.tensors_of("WeightAverage", "weights")


def _is_used_plain(used: dict[str, Any], saved: SavedTrainer) -> bool:
    """Whether the weights themselves were judged: those put there at the end, or those of this very step."""
    if used.get("origin"):
        return used.get("kind") == "plain"
    return used.get("judged") == "plain" and used.get("judged_at") == saved.step

"""Memory for time: activations that are computed again instead of kept."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from sonosco_like.errors import UsageError, did_you_mean


def recompute_activations(model: nn.Module, patterns: Sequence[str]) -> None:
    """Have the modules whose names match a pattern forget their activations until the backward pass needs them.

    Random numbers are drawn again as they were, so the gradients are the same. Statistics that a module gathers in
    `forward`, such as those of batch normalisation, are gathered twice.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    for pattern in patterns:
        matching = [module for name, module in modules.items() if fnmatchcase(name, pattern)]
        if not matching:
            raise UsageError(
                f"`gradient_checkpointing` pattern {pattern!r} matches no part of {type(model).__name__}"
                f"{did_you_mean(pattern, modules)}."
            )
        for module in matching:
            module.forward = partial(checkpoint, module.forward, use_reentrant=False)

"""The moment after the last batch that went well, so that a failed one can be undone."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.training.randomness import generator_states, restore_generators


class LastGood:
    """What a batch changes before its gradients are used: generators, buffers, the place in the data."""

    def __init__(self, model: nn.Module, loader: Any) -> None:
        self._loader = loader
        self._can_seek = hasattr(loader, "position") and hasattr(loader, "seek")
        self._has_state = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self._buffers = list(model.buffers())
        self._copies: list[Tensor] = [buffer.clone() for buffer in self._buffers]
        self.remember()

    def remember(self) -> None:
        """Take the present moment as good."""
        self._generators = generator_states()
        self._place = self._place_in_the_data()
        if self._buffers:
            torch._foreach_copy_(self._copies, self._buffers)

    def restore_buffers(self) -> None:
        """Undo what a forward pass left in the model."""
        if self._buffers:
            torch._foreach_copy_(self._buffers, self._copies)

    def restore(self) -> None:
        """Go back to the remembered moment."""
        self.restore_buffers()
        restore_generators(self._generators)
        if self._can_seek:
            self._loader.seek(self._place)
        elif self._place is not None:
            self._loader.load_state_dict(copy.deepcopy(self._place))

    def _place_in_the_data(self) -> Any:
        """A position, which costs nothing to ask for; of a loader without one a copy of its state."""
        if self._can_seek:
            return self._loader.position
        return copy.deepcopy(self._loader.state_dict()) if self._has_state else None

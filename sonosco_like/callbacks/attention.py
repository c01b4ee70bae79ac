"""Callbacks for attention decoders."""

from __future__ import annotations

import logging
from typing import Any

from torch import nn

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Duration, Moment, has_lasted
from sonosco_like.serialization import serializable

logger = logging.getLogger(__name__)


@serializable
class DisableSoftWindowAttention(AbstractCallback):
    """Ends the soft window pre-training of attention decoders (Hannun et al. 2019) `after` some time, such as `3ep`.

    A decoder with a `window_sigma` is drawn to the diagonal from the beginning; from then on it must find its own way.
    """

    after: str = "3ep"

    def __post_init__(self) -> None:
        self._after = Duration.parse(self.after)
        self._enabled = True

    def on_training_start(self, moment: Moment) -> None:
        """Refuse a model that has no window to turn off."""
        if not _windowed(moment.context.model):
            raise UsageError(
                "DisableSoftWindowAttention finds no soft window in the model: "
                "give its attention decoder a `window_sigma`, or leave this callback out."
            )

    def on_batch_start(self, moment: Moment) -> None:
        """Turn the window off if the time has come."""
        if self._enabled and has_lasted(self._after, moment.context):
            self._enabled = False
            for decoder in _windowed(moment.context.model):
                if decoder.soft_window:
                    decoder.soft_window = False
                    logger.info("Soft window of attention turned off at step %d.", moment.context.global_step)


def _windowed(model: nn.Module) -> list[Any]:
    """The parts of a model that have a soft window, turned off or not."""
    return [part for part in model.modules() if getattr(part, "window_sigma", None) is not None]

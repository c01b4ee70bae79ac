"""Callbacks for attention decoders."""

from __future__ import annotations

import logging
from typing import Any

from torch import nn

from sonosco_like.callbacks.intervals import share_done
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Duration, Moment
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

    def on_training_start(self, moment: Moment) -> None:
        """Refuse a model that has no window to turn off."""
        if not _windowed(moment.context.model):
            raise UsageError(
                "DisableSoftWindowAttention finds no soft window in the model: "
                "give its attention decoder a `window_sigma`, or leave this callback out."
            )

    def on_epoch_start(self, moment: Moment) -> None:
        """Turn the window off if the time has come."""
        self._disable_if_due(moment.context)

    def on_batch_start(self, moment: Moment) -> None:
        """Turn the window off if the time has come, unless that is told in epochs."""
        if self._after.unit != "ep":
            self._disable_if_due(moment.context)

    def _disable_if_due(self, context: Any) -> None:
        if not self._after.reached(context.epoch, context.global_step, context.seconds, share_done(context)):
            return
        for decoder in _windowed(context.model):
            if decoder.soft_window:
                decoder.soft_window = False
                logger.info("Soft window of attention turned off at step %d.", context.global_step)


def _windowed(model: nn.Module) -> list[Any]:
    """The parts of a model that have a soft window, turned off or not."""
    return [part for part in model.modules() if getattr(part, "window_sigma", None) is not None]

"""When checkpoints are taken, and which of them are kept."""

from __future__ import annotations

from typing import Any

from sonosco_like.events import AbstractCallback, Duration, Moment
from sonosco_like.serialization import serializable, state


@serializable
class ModelCheckpoint(AbstractCallback):
    """Saves the whole trainer every so often, and keeps the last few.

    `every` is a number of epochs, batches or minutes (`1ep`, `200ba`, `10min`). `keep_last` checkpoints stay; older
    ones are deleted when a newer one is on disk.
    """

    order: int = 1000
    every: str = "1ep"
    keep_last: int = 2
    saved_at_seconds: float = state(0.0)

    def __post_init__(self) -> None:
        self._every = Duration.parse(self.every)

    def on_batch_end(self, moment: Moment) -> None:
        """Ask for a checkpoint after so many batches or seconds."""
        context = moment.context
        if self._every.unit == "ba" and context.global_step % int(self._every.value) == 0:
            context.save_checkpoint()
        elif self._every.unit == "s" and context.seconds - self.saved_at_seconds >= self._every.value:
            self.saved_at_seconds = context.seconds
            context.save_checkpoint()

    def on_epoch_end(self, moment: Moment) -> None:
        """Ask for a checkpoint after so many epochs."""
        if self._every.unit == "ep" and (moment.context.epoch + 1) % int(self._every.value) == 0:
            moment.context.save_checkpoint()

    def on_checkpoint_end(self, moment: Moment) -> None:
        """Point to what was saved, and delete what is not wanted any more."""
        checkpoints: Any = getattr(moment.context.experiment, "checkpoints", None)
        if checkpoints is not None and moment.error is None:
            checkpoints.point("latest", moment.result)
            checkpoints.prune(set(), self.keep_last)

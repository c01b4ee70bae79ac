"""The end that `max_duration` sets to a training."""

from __future__ import annotations

from typing import Any

from sonosco_like.events import Duration, epoch_batches, has_lasted


class Limit:
    """How long a training may last: so many epochs, batches or seconds, or a share of all batches."""

    def __init__(self, text: str | None) -> None:
        """Raises UsageError if the text is no duration; without one there is no limit."""
        self._duration = Duration.parse(text) if text else None

    def reached(self, trainer: Any) -> bool:
        """Whether the training has lasted that long."""
        return self._duration is not None and has_lasted(self._duration, trainer)

    def ends_training(self, trainer: Any) -> bool:
        """Whether all processes end here, because one of them has reached the limit: each has a clock of its own."""
        reached = self.reached(trainer)
        if self._duration is not None and self._duration.unit == "s":
            return bool(trainer.processes.any(reached)[0])
        return reached

    def cuts_epoch(self, trainer: Any) -> bool:
        """Whether the epoch under way ends here; a share that is over with the epoch lets it come to its own end."""
        if self._duration is None or self._duration.unit == "ep" or not self.ends_training(trainer):
            return False
        return self._duration.unit != "dur" or trainer.batches_done != epoch_batches(trainer)

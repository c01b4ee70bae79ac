"""Intervals in which a callback acts: `every: 100ba`, `2ep`, `10min`, `0.1dur`."""

from __future__ import annotations

from sonosco_like.events import Duration, Moment, TrainerContext, epoch_batches, whole_share
from sonosco_like.events.duration import ROUNDING


class Every:
    """Decides at the end of a batch or an epoch whether an interval is over.

    Batches, epochs and shares are counted from the beginning of the run, so that a resumed run has the same intervals.
    An interval of time ends with the batch in which its time is over.
    """

    def __init__(self, text: str | int) -> None:
        """Raises UsageError if the text is no duration."""
        self.duration = Duration.parse(text)
        self._seconds: float | None = None

    def after_batch(self, context: TrainerContext) -> bool:
        """Whether an interval ends with this batch; never if the interval is in epochs."""
        unit = self.duration.unit
        if unit == "ba":
            return self._passed(context.global_step - 1, context.global_step)
        if unit == "dur":
            batches = epoch_batches(context)
            return batches is not None and self._passed(*(self._share(context, batches, back) for back in (1, 0)))
        if unit == "s":
            before, self._seconds = self._seconds, context.seconds
            return before is not None and self._passed(before, context.seconds)
        return False

    def after_epoch(self, context: TrainerContext) -> bool:
        """Whether an interval ends with this epoch: one in epochs, or a share of a training of unknown length."""
        if self.duration.unit == "dur" and epoch_batches(context) is None:
            return self._passed(*(whole_share(context, context.epoch + more, 0) for more in (0, 1)))
        return self.duration.unit == "ep" and self._passed(context.epoch, context.epoch + 1)

    @staticmethod
    def _share(context: TrainerContext, epoch_batches: int, back: int) -> float:
        """The share of the training that was done so many batches ago."""
        epochs = context.epoch + (context.batches_done - back) / epoch_batches
        return whole_share(context, epochs, context.global_step - back)

    def _passed(self, before: float, now: float) -> bool:
        value = self.duration.value
        return int(now / value + ROUNDING) > int(before / value + ROUNDING)


def epoch_is_over(moment: Moment) -> bool:
    """Whether the epoch is complete: it has no error, or a Stop ended it on purpose."""
    return moment.error is None or getattr(moment.error, "scope", None) == "epoch"

"""Again and again: `every: 100ba`, `2ep`, `10min`, `0.1dur`."""

from __future__ import annotations

from typing import Any

from sonosco_like.events import Duration, Moment

_ROUNDING = 1e-9  # 0.3 of a training is three times 0.1 of it


class Every:
    """Says when it is time again.

    Batches, epochs and shares are counted from the beginning of the run, so that a resumed run has the same times. An
    interval of time ends with the batch in which it is over.
    """

    def __init__(self, text: str) -> None:
        """Raises UsageError if the text is no duration."""
        self.duration = Duration.parse(text)
        self._seconds: float | None = None

    def after_batch(self, context: Any) -> bool:
        """Whether it is time at the end of this batch; never if epochs are counted."""
        unit = self.duration.unit
        if unit == "ba":
            return self._passed(context.global_step - 1, context.global_step)
        if unit == "dur":
            batches = epoch_batches(context)
            done = context.batches_done
            return batches is not None and self._passed_share(context, (done - 1) / batches, done / batches)
        if unit == "s":
            before, self._seconds = self._seconds, context.seconds
            return before is not None and self._passed(before, context.seconds)
        return False

    def after_epoch(self, context: Any) -> bool:
        """Whether it is time at the end of this epoch: if epochs are counted, or shares of batches nobody can count."""
        if self.duration.unit == "dur" and epoch_batches(context) is None:
            return self._passed_share(context, 0, 1)
        return self.duration.unit == "ep" and self._passed(context.epoch, context.epoch + 1)

    def _passed_share(self, context: Any, before: float, now: float) -> bool:
        return self._passed((context.epoch + before) / context.epochs, (context.epoch + now) / context.epochs)

    def _passed(self, before: float, now: float) -> bool:
        value = self.duration.value
        return int(now / value + _ROUNDING) > int(before / value + _ROUNDING)


def has_lasted(duration: Duration, context: Any) -> bool:
    """Whether a training has come as far as a duration says."""
    return duration.reached(context.epoch, context.global_step, context.seconds, share_done(context))


def epoch_is_over(moment: Moment) -> bool:
    """Whether the epoch that ends here is done, and not only interrupted: a Stop may have cut it short on purpose."""
    return moment.error is None or getattr(moment.error, "scope", None) == "epoch"


def batches_of(loader: Any) -> int | None:
    """The batches of an epoch, if the loader knows."""
    try:
        return len(loader)
    except TypeError:
        return None


def epoch_batches(context: Any) -> int | None:
    """The batches of an epoch of this training, if that is known: of its data, or fewer if a callback limits them."""
    limits = [getattr(callback, "train_batches", None) for callback in context.callbacks]
    known = [batches_of(context.train_data_loader), *limits]
    return min((batches for batches in known if batches is not None), default=None)


def share_done(context: Any) -> float:
    """How much of all epochs is done, from 0 to 1; in whole epochs if nobody knows how many batches one has."""
    batches = epoch_batches(context)
    under_way = context.batches_done / batches if batches else 0.0
    return float((context.epoch + under_way) / context.epochs)

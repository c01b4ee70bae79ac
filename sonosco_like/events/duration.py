"""Lengths of training as people write them (`10ep`, `2000ba`, `90min`, `0.5dur`), and intervals (`every: 100ba`).

The whole training, of which `0.5dur` is a share, ends with `epochs` or `max_duration`, whichever comes first. A
`max_duration` in time does not count, because its last batch is not known beforehand.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from sonosco_like.errors import UsageError
from sonosco_like.events.callback import AbstractCallback, Moment, TrainerContext

Unit = Literal["ep", "ba", "s", "dur"]
_SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
ROUNDING = 1e-9  # 0.3 of a training is three times 0.1 of it
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


@dataclass(frozen=True, slots=True)
class Duration:
    """A number of epochs, batches or seconds, or a share of the whole training."""

    value: float
    unit: Unit

    @classmethod
    def parse(cls, text: str | int) -> Duration:
        """Read a duration; a whole number counts batches. Raises UsageError, which names the possible forms."""
        match = _FORM.fullmatch(text if isinstance(text, str) else f"{text}ba")
        value, unit = (float(match[1]), match[2]) if match else (0.0, "")
        if unit in _SECONDS and value > 0:
            return cls(value * _SECONDS[unit], "s")
        whole = unit not in ("ep", "ba") or value == int(value)
        if unit not in ("ep", "ba", "dur") or not whole or value <= 0 or (unit == "dur" and value > 1):
            raise UsageError(
                f"{text!r} is not a duration. Write epochs (10ep), batches (2000ba), time (90min, 1.5h, 30s) or a "
                f"share of the training (0.5dur)."
            )
        return cls(value, unit)  # type: ignore[arg-type]

    def reached(self, epochs: int, batches: int, seconds: float, share: float = 0.0) -> bool:
        """Whether a training that has come so far has lasted this long."""
        if self.unit == "dur":
            return share >= self.value - ROUNDING
        return {"ep": epochs, "ba": batches, "s": seconds}[self.unit] >= self.value

    def __str__(self) -> str:
        return f"{self.value:.15g}{self.unit}"  # more digits than `g` alone: 2000000ba, not 2e+06ba


def has_lasted(duration: Duration, context: TrainerContext) -> bool:
    """Whether a training has lasted for a duration."""
    share = share_done(context) if duration.unit == "dur" else 0.0
    return duration.reached(context.epoch, context.global_step, context.seconds, share)


def share_done(context: TrainerContext) -> float:
    """The share of the whole training that is done, from 0 to 1."""
    return whole_share(context, epochs_done(context), context.global_step)


def epochs_done(context: TrainerContext) -> float:
    """The epochs that are done, with the part of the one under way if the number of its batches is known."""
    batches = epoch_batches(context)
    return context.epoch + (context.batches_done / batches if batches else 0.0)


def whole_share(context: TrainerContext, epochs: float, batches: int) -> float:
    """The share of the whole training that so many epochs, or batches, are."""
    limit = Duration.parse(context.max_duration) if context.max_duration else None
    share = epochs / context.epochs
    if limit is None or limit.unit == "s":
        return share
    counted = {"ep": epochs, "ba": batches, "dur": share}[limit.unit]
    return max(share, counted / limit.value)


@dataclass(frozen=True, slots=True)
class TrainingLength:
    """How long a training is, for schedules, which count the steps of the optimizer.

    `batches` are those of an epoch; None if its loader has no length. `accumulated` of them share a step, and so do
    those that are left at the end of an epoch. `limit` is the `max_duration` of the training.
    """

    epochs: int
    batches: int | None
    accumulated: int = 1
    limit: Duration | None = None

    def steps_of(self, duration: Duration) -> int:
        """The steps of the optimizer in a duration. Raises UsageError for one that is not known beforehand."""
        if duration.unit == "dur":
            return math.floor(duration.value * self.steps + ROUNDING)
        return self._steps_in(self._batches_in(duration))

    @property
    def steps(self) -> int:
        """The steps of the whole training."""
        batches = self.epochs * self.batches if self.batches is not None else None
        if self.limit is not None and self.limit.unit != "s":
            limited = self._batches_in(self.limit)
            batches = limited if batches is None else min(batches, limited)
        if batches is None:
            raise UsageError("the training data has no length, so that the number of batches is not known")
        return self._steps_in(batches)

    def _batches_in(self, duration: Duration) -> int:
        if duration.unit == "ba":
            return int(duration.value)
        if duration.unit == "s":
            raise UsageError("the number of batches in a time is not known beforehand")
        if self.batches is None:
            raise UsageError("the training data has no length, so that the number of batches of an epoch is not known")
        epochs = duration.value if duration.unit == "ep" else duration.value * self.epochs
        return math.ceil(epochs * self.batches - ROUNDING)

    def _steps_in(self, batches: int) -> int:
        if self.batches is None:
            return math.ceil(batches / self.accumulated)
        epochs, rest = divmod(batches, self.batches)
        return epochs * math.ceil(self.batches / self.accumulated) + math.ceil(rest / self.accumulated)


def epoch_batches(context: TrainerContext) -> int | None:
    """The batches of an epoch of this training, if that is known: of its data, or fewer if a callback limits them."""
    limits = [each.epoch_limit() for each in context.callbacks if isinstance(each, AbstractCallback)]
    known = [batches_of(context.train_data_loader), *limits]
    return min((batches for batches in known if batches is not None), default=None)


def describe_place(context: TrainerContext) -> str:
    """Where a training is, as people count: `epoch 2/7, step 40/114`, with the batches of the epoch that are done."""
    batches = epoch_batches(context)
    step = f"step {context.batches_done}" + (f"/{batches}" if batches is not None else "")
    return f"epoch {context.epoch + 1}/{context.epochs}, {step}"


def batches_of(loader: Any) -> int | None:
    """The batches of an epoch, if the loader knows."""
    try:
        return len(loader)
    except TypeError:
        return None


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

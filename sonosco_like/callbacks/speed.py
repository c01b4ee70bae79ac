"""Callbacks that measure time, and log it: how fast the training goes, and how long it will take."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sonosco_like.callbacks.monitors import Monitor
from sonosco_like.errors import UsageError
from sonosco_like.events import Moment, epoch_batches
from sonosco_like.serialization import serializable, state

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Passage:
    """One batch as the speed monitor saw it."""

    seconds: float
    waiting: float
    utterances: int
    audio_seconds: float


@serializable
class SpeedMonitor(Monitor):
    """Logs, `every` so often, how fast the last `window` batches went.

    Logged are `speed/batches_per_second`, `speed/utterances_per_second`, `speed/audio_seconds_per_second` (if
    batches know their durations) and `speed/waiting_share`, the share of the time in which the loop waited for data.
    The time of a batch runs from asking for it to its end; validations and checkpoints are not in it.
    """

    window: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 1:
            raise UsageError(f"`window` must be at least 1 batch, got {self.window}.")
        self._passages: deque[_Passage] = deque(maxlen=self.window)
        self._began = self._fetched = self._validation_began = 0.0
        self._validating = 0.0
        self._batch: Any = None

    def on_fetch_start(self, moment: Moment) -> None:
        """The clock of a batch starts."""
        self._began, self._validating = time.perf_counter(), 0.0

    def on_fetch_end(self, moment: Moment) -> None:
        """The batch is here."""
        self._fetched, self._batch = time.perf_counter(), moment.result

    def on_validation_start(self, moment: Moment) -> None:
        """What follows is not training."""
        self._validation_began = time.perf_counter()

    def on_validation_end(self, moment: Moment) -> None:
        """Training goes on."""
        self._validating += time.perf_counter() - self._validation_began

    def on_batch_end(self, moment: Moment) -> None:
        """Count the batch, and log if it is time."""
        seconds = time.perf_counter() - self._began - self._validating
        utterances, audio_seconds = _size_of(self._batch)
        self._passages.append(_Passage(seconds, self._fetched - self._began, utterances, audio_seconds))
        self._batch = None
        super().on_batch_end(moment)

    def measured(self, context: Any) -> Mapping[str, float]:
        """The speeds over the last batches."""
        seconds = max(sum(each.seconds for each in self._passages), 1e-9)
        audio_seconds = sum(each.audio_seconds for each in self._passages)
        audio = {"speed/audio_seconds_per_second": audio_seconds / seconds} if audio_seconds else {}
        return {
            "speed/batches_per_second": len(self._passages) / seconds,
            "speed/utterances_per_second": sum(each.utterances for each in self._passages) / seconds,
            **audio,
            "speed/waiting_share": sum(each.waiting for each in self._passages) / seconds,
        }


def _size_of(batch: Any) -> tuple[int, float]:
    """Utterances, and seconds of audio, of a batch of any kind."""
    parts = list(batch.values()) if isinstance(batch, dict) else batch
    inputs = parts[0] if isinstance(parts, (list, tuple)) and parts else batch
    count = len(inputs) if hasattr(inputs, "__len__") else 1
    return count, float(sum(getattr(batch, "durations", ())))


@serializable
class EpochTimeEstimate(Monitor):
    """Says, `every` so often, how long the epoch takes, and how much time is left of it and of the training.

    Logs `time/epoch_seconds`, `time/epoch_seconds_left` and `time/training_seconds_left`. How many batches an epoch has
    is asked of the data loader; one that does not know is counted through its first epoch.
    """

    every: str = "100ba"
    epoch_batches: int | None = state(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._began, self._began_at = 0.0, 0

    def on_epoch_start(self, moment: Moment) -> None:
        """The clock of the epoch starts; a resumed epoch has batches behind it."""
        self._began, self._began_at = time.perf_counter(), moment.context.batches_done

    def on_epoch_end(self, moment: Moment) -> None:
        """Learn how many batches an epoch has."""
        if moment.error is None:  # an epoch that was cut short has fewer
            self.epoch_batches = moment.context.batches_done
        super().on_epoch_end(moment)

    def measured(self, context: Any) -> Mapping[str, float]:
        """The estimates, or nothing as long as nobody knows how many batches an epoch has."""
        batches = epoch_batches(context) or self.epoch_batches
        done = context.batches_done - self._began_at
        if batches is None or done < 1:
            return {}
        pace = (time.perf_counter() - self._began) / done
        epoch, epoch_left = pace * batches, pace * max(batches - context.batches_done, 0)
        training_left = epoch_left + epoch * (context.epochs - context.epoch - 1)
        logger.info(
            "An epoch takes %s. Left: %s of epoch %d, %s of the training.",
            clock(epoch), clock(epoch_left), context.epoch, clock(training_left),
        )  # fmt: skip
        return {
            "time/epoch_seconds": epoch,
            "time/epoch_seconds_left": epoch_left,
            "time/training_seconds_left": training_left,
        }


def clock(seconds: float) -> str:
    """Hours, minutes and seconds as on a clock: `1:02:03`, or `2:03` if less than an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

"""The speed of the training, and the time that is left."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sonosco_like.callbacks.monitors import PeriodicLogger
from sonosco_like.errors import UsageError
from sonosco_like.events import Duration, Moment, TrainerContext, epoch_batches
from sonosco_like.serialization import serializable, state

logger = logging.getLogger(__name__)


class Throughput:
    """Counts batches, audio and time since the run was started or resumed; the time of validations is not counted."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._paused = 0.0
        self._pause_began: float | None = None
        self._batches = 0
        self._audio_seconds = 0.0

    def add(self, batch: Any) -> None:
        """Count a batch of the training."""
        self._batches += 1
        self._audio_seconds += sum(getattr(batch, "durations", ()))

    def pause(self) -> None:
        """Stop the clock of the training, for a validation."""
        self._pause_began = time.monotonic()

    def resume(self) -> None:
        """Start the clock of the training again."""
        if self._pause_began is not None:
            self._paused += time.monotonic() - self._pause_began
            self._pause_began = None

    @property
    def audio_per_second(self) -> float | None:
        """Seconds of audio trained on per second; None if batches have no durations."""
        spent = time.monotonic() - self._began - self._paused
        return self._audio_seconds / spent if self._audio_seconds and spent > 0 else None

    def seconds_left(self, context: TrainerContext) -> float | None:
        """Seconds until the training ends, if validations take as much time as so far; None if unknown."""
        rate = (time.monotonic() - self._began) / self._batches if self._batches else None
        return training_seconds_left(context, rate, epoch_batches(context))


def training_seconds_left(
    context: TrainerContext, seconds_per_batch: float | None, batches_per_epoch: int | None
) -> float | None:
    """Seconds until the last epoch or `max_duration` ends the training, whichever comes first; None if unknown."""
    limit = Duration.parse(context.max_duration) if context.max_duration else None
    batches = _batches_left(context, limit, batches_per_epoch)
    estimates = []
    if batches is not None and seconds_per_batch is not None:
        estimates.append(batches * seconds_per_batch)
    if limit is not None and limit.unit == "s":
        estimates.append(limit.value - context.seconds)
    return max(0.0, min(estimates)) if estimates else None


def _batches_left(context: TrainerContext, limit: Duration | None, batches_per_epoch: int | None) -> float | None:
    epochs: float = context.epochs
    if limit is not None and limit.unit in ("ep", "dur"):
        epochs = min(epochs, limit.value if limit.unit == "ep" else limit.value * epochs)
    left = None
    if batches_per_epoch is not None:
        left = float((epochs - context.epoch) * batches_per_epoch - context.batches_done)
    if limit is None or limit.unit != "ba":
        return left
    until_limit = float(limit.value - context.global_step)
    return until_limit if left is None else min(until_limit, left)


@dataclass(frozen=True, slots=True)
class _BatchTime:
    """The time of one batch, and its size."""

    seconds: float
    seconds_waiting: float
    utterances: int
    audio_seconds: float


@serializable
class SpeedMonitor(PeriodicLogger):
    """Logs the speed of the last `window` batches at the interval `every`.

    The values are `speed/batches_per_second`, `speed/utterances_per_second`, `speed/audio_seconds_per_second` (if
    batches know their durations) and `speed/waiting_share`, the share of the time in which the loop waited for data.
    The time of a batch is from its request to its end, without validations and checkpoints.
    """

    window: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 1:
            raise UsageError(f"`window` must be at least 1 batch, got {self.window}.")
        self._batch_times: deque[_BatchTime] = deque(maxlen=self.window)
        self._began = self._fetched = self._validation_began = 0.0
        self._validating = 0.0
        self._batch: Any = None

    def on_fetch_start(self, moment: Moment) -> None:
        """Start the clock of a batch."""
        self._began, self._validating = time.perf_counter(), 0.0

    def on_fetch_end(self, moment: Moment) -> None:
        """Note the time at which the batch arrived."""
        self._fetched, self._batch = time.perf_counter(), moment.result

    def on_validation_start(self, moment: Moment) -> None:
        """Start the clock of a validation, which does not count."""
        self._validation_began = time.perf_counter()

    def on_validation_end(self, moment: Moment) -> None:
        """Stop the clock of the validation."""
        self._validating += time.perf_counter() - self._validation_began

    def on_batch_end(self, moment: Moment) -> None:
        """Count the batch, and log if the interval is over."""
        seconds = time.perf_counter() - self._began - self._validating
        utterances, audio_seconds = _size_of(self._batch)
        self._batch_times.append(_BatchTime(seconds, self._fetched - self._began, utterances, audio_seconds))
        self._batch = None
        super().on_batch_end(moment)

    def measure(self, context: TrainerContext) -> Mapping[str, float]:
        """The speeds over the last `window` batches."""
        seconds = max(sum(each.seconds for each in self._batch_times), 1e-9)
        audio_seconds = sum(each.audio_seconds for each in self._batch_times)
        audio = {"speed/audio_seconds_per_second": audio_seconds / seconds} if audio_seconds else {}
        return {
            "speed/batches_per_second": len(self._batch_times) / seconds,
            "speed/utterances_per_second": sum(each.utterances for each in self._batch_times) / seconds,
            **audio,
            "speed/waiting_share": sum(each.seconds_waiting for each in self._batch_times) / seconds,
        }


def _size_of(batch: Any) -> tuple[int, float]:
    """The number of utterances and the seconds of audio in a batch of any kind."""
    parts = list(batch.values()) if isinstance(batch, dict) else batch
    inputs = parts[0] if isinstance(parts, (list, tuple)) and parts else batch
    count = len(inputs) if hasattr(inputs, "__len__") else 1
    return count, float(sum(getattr(batch, "durations", ())))


@serializable
class EpochTimeEstimate(PeriodicLogger):
    """Estimates the time of an epoch, and the time left of the epoch and of the training, at the interval `every`.

    Logs `time/epoch_seconds`, `time/epoch_seconds_left` and `time/training_seconds_left`. The data loader
    gives the number of batches of an epoch; if it has no length, the batches of the first epoch are counted.
    """

    every: int | str = "100ba"
    epoch_batches: int | None = state(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._began, self._began_at = 0.0, 0

    def on_epoch_start(self, moment: Moment) -> None:
        """Start the clock of the epoch, after the batches that were done before a resume."""
        self._began, self._began_at = time.perf_counter(), moment.context.batches_done

    def on_epoch_end(self, moment: Moment) -> None:
        """Note the number of batches of an epoch."""
        if moment.error is None:  # an epoch that was cut short has fewer
            self.epoch_batches = moment.context.batches_done
        super().on_epoch_end(moment)

    def measure(self, context: TrainerContext) -> Mapping[str, float]:
        """The estimates; nothing as long as the number of batches of an epoch is unknown."""
        batches = epoch_batches(context) or self.epoch_batches
        done = context.batches_done - self._began_at
        if batches is None or done < 1:
            return {}
        rate = (time.perf_counter() - self._began) / done
        epoch, epoch_left = rate * batches, rate * max(batches - context.batches_done, 0)
        training_left = training_seconds_left(context, rate, batches) or 0.0
        logger.info(
            "An epoch takes %s. Left: %s of epoch %d, %s of the training.",
            format_duration(epoch), format_duration(epoch_left), context.epoch + 1, format_duration(training_left),
        )  # fmt: skip
        return {
            "time/epoch_seconds": epoch,
            "time/epoch_seconds_left": epoch_left,
            "time/training_seconds_left": training_left,
        }


def format_duration(seconds: float) -> str:
    """Hours, minutes and seconds as on a clock: `1:02:03`, or `2:03` if less than an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

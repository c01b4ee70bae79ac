"""How fast a run is, and how long it will still take."""

from __future__ import annotations

import time
from typing import Any

from sonosco_like.events import Duration, epoch_batches


class Pace:
    """Counts batches and audio since the run was started or resumed, and the time without that of validations."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._paused = 0.0
        self._pause_began: float | None = None
        self._batches = 0
        self._audio_seconds = 0.0

    def add(self, batch: Any) -> None:
        """One more batch was trained on."""
        self._batches += 1
        self._audio_seconds += sum(getattr(batch, "durations", ()))

    def pause(self) -> None:
        """Something other than training begins."""
        self._pause_began = time.monotonic()

    def go_on(self) -> None:
        """Training goes on."""
        if self._pause_began is not None:
            self._paused += time.monotonic() - self._pause_began
            self._pause_began = None

    @property
    def audio_per_second(self) -> float | None:
        """Seconds of audio trained on in a second; None if batches do not say how long they are."""
        spent = time.monotonic() - self._began - self._paused
        return self._audio_seconds / spent if self._audio_seconds and spent > 0 else None

    def seconds_left(self, context: Any) -> float | None:
        """Until the training is over, if it goes on as it did, validations included; None if nobody knows yet."""
        limit = Duration.parse(context.max_duration) if getattr(context, "max_duration", None) else None
        batches = _batches_left(context, limit)
        guesses = []
        if batches is not None and self._batches:
            guesses.append(batches * (time.monotonic() - self._began) / self._batches)
        if limit is not None and limit.unit == "s":
            guesses.append(limit.value - context.seconds)
        return max(0.0, min(guesses)) if guesses else None


def _batches_left(context: Any, limit: Duration | None) -> float | None:
    in_epoch = epoch_batches(context)
    epochs = context.epochs
    if limit is not None and limit.unit in ("ep", "dur"):
        epochs = min(epochs, limit.value if limit.unit == "ep" else limit.value * epochs)
    left = None if in_epoch is None else float((epochs - context.epoch) * in_epoch - context.batches_done)
    if limit is None or limit.unit != "ba":
        return left
    ahead = float(limit.value - context.global_step)
    return ahead if left is None else min(ahead, left)

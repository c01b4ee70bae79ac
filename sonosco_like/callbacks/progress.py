"""What people see while a run goes on: a bar in a terminal, plain lines elsewhere, a line for each epoch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from sonosco_like.callbacks.intervals import Every
from sonosco_like.callbacks.naming import short_name, shown
from sonosco_like.callbacks.pace import Pace
from sonosco_like.callbacks.speed import clock
from sonosco_like.events import AbstractCallback, Moment, batches_of, epoch_batches
from sonosco_like.serialization import serializable

_HEADLINES = ("word_error_rate", "character_error_rate")  # the first of these that is measured is shown beside the loss


@serializable
class ProgressBar(AbstractCallback):
    """Shows where the training is: epoch, step, loss, word error rate, audio seconds per second, time left.

    In a terminal it is a bar, with another one during validations; elsewhere plain lines, `every` so often and after
    each validation and epoch. The bar is drawn anew at most every `refresh` seconds; only then are measures read. It
    goes to the error stream, so that what a command prints can be piped.
    """

    every: str = "50ba"
    refresh: float = 0.25
    ranks: list[int] | None = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self._every = Every(self.every)
        self._pace = Pace()
        self._bars: _Bars | None = None

    def on_training_start(self, moment: Moment) -> None:
        """Start the clock, and the bar if there is a terminal to draw it in."""
        self._pace = Pace()
        console = Console(file=sys.stderr)
        self._bars = _Bars(console, self.refresh) if console.is_terminal else None

    def on_epoch_start(self, moment: Moment) -> None:
        """Begin an epoch, at the batch where it was left if it was."""
        context = moment.context
        if self._bars is not None:
            self._bars.begin_epoch(_epoch_of(context), epoch_batches(context), context.batches_done)

    def on_batch_end(self, moment: Moment) -> None:
        """One more batch."""
        context = moment.context
        self._pace.add(moment.args["batch"])
        if self._bars is not None:
            self._bars.advance(context.batches_done, lambda: self._words(context))
        elif self._every.after_batch(context):
            self._say(context)

    def on_validation_start(self, moment: Moment) -> None:
        """Begin a validation."""
        self._pace.pause()
        if self._bars is not None:
            self._bars.begin_validation(batches_of(moment.args["loader"]))

    def on_validation_batch_end(self, moment: Moment) -> None:
        """One more batch of the validation."""
        if self._bars is not None:
            self._bars.advance_validation()

    def on_validation_end(self, moment: Moment) -> None:
        """Go on with the training."""
        self._pace.go_on()
        if self._bars is not None:
            self._bars.end_validation()
        elif moment.error is None and moment.context.batches_done != epoch_batches(moment.context):
            self._say(moment.context)  # else the epoch ends here, and says so itself

    def on_epoch_end(self, moment: Moment) -> None:
        """Leave a line about the epoch."""
        if self._bars is not None:
            self._bars.end_epoch(self._words(moment.context))
        elif moment.error is None:
            self._say(moment.context, "done")

    def close(self) -> None:
        """Give the terminal back, also after an error."""
        if self._bars is not None:
            self._bars.close()
            self._bars = None

    def _say(self, context: Any, *more: str) -> None:
        batches = epoch_batches(context)
        place = f"step {context.batches_done}" + (f"/{batches}" if batches is not None else "")
        print(", ".join([_epoch_of(context), place, *more, *self._words(context)]), file=sys.stderr, flush=True)

    def _words(self, context: Any) -> list[str]:
        words = _measures(context.performance_measures)
        rate, left = self._pace.audio_per_second, self._pace.seconds_left(context)
        words += [f"{rate:.0f} s audio/s"] if rate is not None else []
        return words + ([f"{clock(left)} left"] if left is not None else [])


@serializable
class PrintMetrics(AbstractCallback):
    """Prints all measures of training and validation in one line after each epoch."""

    ranks: list[int] | None = field(default_factory=lambda: [0])

    def on_epoch_end(self, moment: Moment) -> None:
        """Print a complete epoch."""
        if moment.error is None:
            measures = moment.context.performance_measures
            ordered = sorted(measures, key=lambda name: not name.endswith("loss"))
            words = (f"{short_name(name)} {shown(name, measures[name])}" for name in ordered)
            print(f"{_epoch_of(moment.context)}:", ", ".join(words), flush=True)


class _Bars:
    """Bars of one epoch and of the validations in it."""

    def __init__(self, console: Console, refresh: float) -> None:
        words = TextColumn("{task.fields[words]}")
        count = TextColumn("{task.completed:.0f}/{task.fields[count]}")
        layout = (TextColumn("{task.description}"), BarColumn(bar_width=20), count, words)
        self._progress = Progress(*layout, console=console, auto_refresh=False, transient=True)
        self._progress.start()
        self._console = console
        self._refresh = refresh
        self._drawn = 0.0
        self._name = ""
        self._epoch: TaskID | None = None
        self._validation: TaskID | None = None

    def begin_epoch(self, name: str, batches: int | None, done: int) -> None:
        self._name = name
        self._epoch = self._add(name, batches, done)

    def advance(self, done: int, words: Any) -> None:
        if self._epoch is not None:
            self._draw(self._epoch, words, completed=done)

    def begin_validation(self, batches: int | None) -> None:
        self._validation = self._add("  validation", batches, 0)

    def advance_validation(self) -> None:
        if self._validation is not None:
            self._draw(self._validation, None, advance=1)

    def end_validation(self) -> None:
        self._remove(self._validation)
        self._validation = None

    def end_epoch(self, words: list[str]) -> None:
        self._remove(self._epoch)
        self._epoch = None
        self._console.print(f"{self._name}, done, {', '.join(words)}", highlight=False)

    def close(self) -> None:
        self._progress.stop()

    def _add(self, name: str, batches: int | None, done: int) -> TaskID:
        count = "?" if batches is None else str(batches)
        task = self._progress.add_task(name, total=batches, completed=done, count=count, words="")
        self._progress.refresh()
        return task

    def _remove(self, task: TaskID | None) -> None:
        if task is not None:
            self._progress.remove_task(task)
            self._progress.refresh()

    def _draw(self, task: TaskID, words: Any, **place: int) -> None:
        now = self._progress.get_time()
        due = now - self._drawn >= self._refresh
        text = {"words": ", ".join(words())} if due and words is not None else {}
        self._progress.update(task, **place, **text)  # type: ignore[arg-type]
        if due:
            self._drawn = now
            self._progress.refresh()


def _epoch_of(context: Any) -> str:
    return f"epoch {context.epoch + 1}/{context.epochs}"


def _measures(measures: Mapping[str, float]) -> list[str]:
    """The loss and the headline metric, of the training and of the last validation."""
    names = ["loss", "val_loss"]
    for prefix in ("", "val_"):
        names += [prefix + name for name in _HEADLINES if prefix + name in measures][:1]
    return [f"{short_name(name)} {shown(name, measures[name])}" for name in names if name in measures]

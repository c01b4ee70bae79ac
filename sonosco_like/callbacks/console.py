"""Output in the terminal: a progress bar or plain lines, a line per epoch, a line per logged step."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from sonosco_like.callbacks.destination import Destination, Plain, plain_values
from sonosco_like.callbacks.measures import format_value, short_name
from sonosco_like.callbacks.speed import Throughput, format_duration
from sonosco_like.events import (
    AbstractCallback,
    Every,
    Moment,
    Stop,
    TrainerContext,
    batches_of,
    describe_place,
    epoch_batches,
    epoch_is_over,
)
from sonosco_like.serialization import serializable

_HEADLINES = ("word_error_rate", "character_error_rate")  # the first one that is measured is shown


@serializable
class ProgressBar(AbstractCallback):
    """Shows the progress of the training: epoch, step, loss, word error rate, audio seconds per second, time left.

    A terminal shows a bar, and a second bar during validations. Elsewhere there are plain lines, at the interval
    `every` and after each validation and epoch. The bar is updated at most every `refresh` seconds, and measures are
    read only then. The output goes to the error stream, so that the output of a command can be piped.
    """

    every: int | str = "50ba"
    refresh: float = 0.25
    ranks: list[int] | None = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self._every = Every(self.every)
        self._throughput = Throughput()
        self._bars: _Bars | None = None
        self._printed = ""

    def on_training_start(self, moment: Moment) -> None:
        """Start the clock, and the bar if there is a terminal to draw it in."""
        self._throughput = Throughput()
        console = Console(file=sys.stderr)
        self._bars = _Bars(console, self.refresh) if console.is_terminal else None

    def on_epoch_start(self, moment: Moment) -> None:
        """Begin an epoch, at its current batch if it is resumed."""
        context = moment.context
        if self._bars is not None:
            self._bars.begin_epoch(_epoch_of(context), epoch_batches(context), context.batches_done)

    def on_batch_end(self, moment: Moment) -> None:
        """Count the batch, and show the progress."""
        context = moment.context
        self._throughput.add(moment.args["batch"])
        if self._bars is not None:
            self._bars.advance(context.batches_done, lambda: self._status(context))
        elif self._every.after_batch(context):
            self._print_status(context)

    def on_validation_start(self, moment: Moment) -> None:
        """Show a second bar."""
        self._throughput.pause()
        if self._bars is not None:
            self._bars.begin_validation(batches_of(moment.args["loader"]))

    def on_validation_batch_end(self, moment: Moment) -> None:
        """Advance the second bar."""
        if self._bars is not None:
            self._bars.advance_validation()

    def on_validation_end(self, moment: Moment) -> None:
        """Remove the second bar, or print a line."""
        self._throughput.resume()
        if self._bars is not None:
            self._bars.end_validation()
        elif moment.error is None and moment.context.batches_done != epoch_batches(moment.context):
            self._print_status(moment.context)  # otherwise `on_epoch_end` prints the line

    def on_epoch_end(self, moment: Moment) -> None:
        """Print a line about the epoch, also about one that ends before its time."""
        if moment.error is not None and not isinstance(moment.error, Stop):
            return
        context, word = moment.context, "done" if epoch_is_over(moment) else "stopped"
        if self._bars is not None:
            self._bars.end_epoch(", ".join([describe_place(context), word, *self._status(context)]))
        else:
            self._print_status(context, word)

    def close(self) -> None:
        """Remove the bar, also after an error."""
        if self._bars is not None:
            self._bars.close()
            self._bars = None

    def _print_status(self, context: TrainerContext, *more: str) -> None:
        place = ", ".join([describe_place(context), *more])
        if place != self._printed:  # a validation and an interval may end with the same batch
            self._printed = place
            print(", ".join([place, *self._status(context)]), file=sys.stderr, flush=True)

    def _status(self, context: TrainerContext) -> list[str]:
        status = _measures(context.performance_measures)
        rate, left = self._throughput.audio_per_second, self._throughput.seconds_left(context)
        status += [f"{rate:.0f} s audio/s"] if rate is not None else []
        return status + ([f"{format_duration(left)} left"] if left is not None else [])


@serializable
class PrintMetrics(AbstractCallback):
    """Prints all measures of training and validation in one line after each epoch."""

    ranks: list[int] | None = field(default_factory=lambda: [0])

    def on_epoch_end(self, moment: Moment) -> None:
        """Print a complete epoch."""
        if moment.error is None:
            measures = moment.context.performance_measures
            ordered = sorted(measures, key=lambda name: not name.endswith("loss"))
            status = (f"{short_name(name)} {format_value(name, measures[name])}" for name in ordered)
            print(f"{_epoch_of(moment.context)}:", ", ".join(status), flush=True)


class _Bars:
    """Bars of one epoch and of the validations in it."""

    def __init__(self, console: Console, refresh: float) -> None:
        status = TextColumn("{task.fields[status]}")
        count = TextColumn("{task.completed:.0f}/{task.fields[count]}")
        layout = (TextColumn("{task.description}"), BarColumn(bar_width=20), count, status)
        self._progress = Progress(*layout, console=console, auto_refresh=False, transient=True)
        self._progress.start()
        self._console = console
        self._refresh = refresh
        self._drawn = 0.0
        self._epoch: TaskID | None = None
        self._validation: TaskID | None = None

    def begin_epoch(self, name: str, batches: int | None, done: int) -> None:
        self._epoch = self._add(name, batches, done)

    def advance(self, done: int, status: Any) -> None:
        if self._epoch is not None:
            self._draw(self._epoch, status, completed=done)

    def begin_validation(self, batches: int | None) -> None:
        self._validation = self._add("  validation", batches, 0)

    def advance_validation(self) -> None:
        if self._validation is not None:
            self._draw(self._validation, None, advance=1)

    def end_validation(self) -> None:
        self._remove(self._validation)
        self._validation = None

    def end_epoch(self, line: str) -> None:
        self._remove(self._epoch)
        self._epoch = None
        self._console.print(line, highlight=False)

    def close(self) -> None:
        self._progress.stop()

    def _add(self, name: str, batches: int | None, done: int) -> TaskID:
        count = "?" if batches is None else str(batches)
        task = self._progress.add_task(name, total=batches, completed=done, count=count, status="")
        self._progress.refresh()
        return task

    def _remove(self, task: TaskID | None) -> None:
        if task is not None:
            self._progress.remove_task(task)
            self._progress.refresh()

    def _draw(self, task: TaskID, status: Any, **place: int) -> None:
        now = self._progress.get_time()
        due = now - self._drawn >= self._refresh
        text = {"status": ", ".join(status())} if due and status is not None else {}
        self._progress.update(task, **place, **text)  # type: ignore[arg-type]
        if due:
            self._drawn = now
            self._progress.refresh()


def _epoch_of(context: TrainerContext) -> str:
    return f"epoch {context.epoch + 1}/{context.epochs}"


def _measures(measures: Mapping[str, float]) -> list[str]:
    """The loss and the headline metric, of the training and of the last validation."""
    names = ["loss", "val_loss"]
    for prefix in ("", "val_"):
        names += [prefix + name for name in _HEADLINES if prefix + name in measures][:1]
    return [f"{short_name(name)} {format_value(name, measures[name])}" for name in names if name in measures]


@serializable
class ConsoleLog(Destination):
    """Prints a line per logged step. `only` are patterns of the names to print, such as `val_*`."""

    only: list[str] = field(default_factory=lambda: ["*"])

    def __post_init__(self) -> None:
        self._heading = ""
        self._values: dict[str, Plain] = {}

    def on_log(self, moment: Moment) -> None:
        wanted = {name: value for name, value in plain_values(moment.args["values"]).items() if self._is_wanted(name)}
        heading = f"epoch {moment.args['epoch'] + 1} step {moment.args['step']}"
        if heading != self._heading:
            self._print()
        self._heading = heading
        self._values |= wanted

    def on_fetch_start(self, moment: Moment) -> None:
        """Print the values of the last batch, which is over."""
        self._print()

    def close(self) -> None:
        self._print()

    def _is_wanted(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.only)

    def _print(self) -> None:
        values, self._values = self._values, {}
        if values:
            print(self._heading, *(f"{short_name(name)} {format_value(name, value)}" for name, value in values.items()))

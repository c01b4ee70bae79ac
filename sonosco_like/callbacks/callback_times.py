"""What the callbacks of a run cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rich.console import Console
from rich.table import Table

from sonosco_like.callbacks.intervals import Every, epoch_is_over
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.serialization import serializable, state


@serializable
class CallbackTimes(AbstractCallback):
    """Prints, when the training ends, how many seconds each callback took, the slowest first.

    With `every` the times are also logged every so often, as `callback_seconds/<callback>`. Several callbacks of one
    class are counted together. `seconds` are those up to the last checkpoint, so that a resumed run goes on counting;
    `print_table(context)` prints them at any moment.
    """

    order: int = 2000
    every: str | None = None
    ranks: list[int] | None = field(default_factory=lambda: [0])
    seconds: dict[str, float] = state({})

    def __post_init__(self) -> None:
        self._every = Every(self.every) if self.every is not None else None
        self._before: dict[str, float] | None = None
        self._now: Mapping[str, float] = {}

    def on_attach(self, moment: Moment) -> None:
        """Go on from what was counted before."""
        self._before, self._now = self.totals(), moment.context.seconds_in_callbacks

    def on_batch_end(self, moment: Moment) -> None:
        """Log if it is time."""
        if self._every is not None and self._every.after_batch(moment.context):
            self._log(moment.context)

    def on_epoch_end(self, moment: Moment) -> None:
        """Log if it is time."""
        if self._every is not None and epoch_is_over(moment) and self._every.after_epoch(moment.context):
            self._log(moment.context)

    def on_checkpoint_start(self, moment: Moment) -> None:
        """Have the checkpoint know the times so far."""
        self.seconds = self.totals()

    def on_training_end(self, moment: Moment) -> None:
        """Print the table."""
        self.print_table(moment.context)

    def totals(self) -> dict[str, float]:
        """Seconds by callback since the training began."""
        before = self.seconds if self._before is None else self._before
        names = dict.fromkeys([*before, *self._now])
        return {name: before.get(name, 0.0) + self._now.get(name, 0.0) for name in names}

    def print_table(self, context: Any) -> None:
        """Print the times so far."""
        table = Table("callback", title="Time in callbacks", title_justify="left")
        table.add_column("seconds", justify="right")
        table.add_column("of the training", justify="right")
        for name, seconds in sorted(self.totals().items(), key=lambda item: -item[1]):
            share = f"{100 * seconds / context.seconds:.1f} %" if context.seconds else "-"
            table.add_row(name, f"{seconds:.3f}", share)
        Console().print(table)

    def _log(self, context: Any) -> None:
        context.log({f"callback_seconds/{name}": seconds for name, seconds in self.totals().items()})

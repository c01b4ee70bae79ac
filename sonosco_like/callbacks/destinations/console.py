"""What was logged, as lines in the terminal."""

from __future__ import annotations

from dataclasses import field
from fnmatch import fnmatchcase

from sonosco_like.callbacks.destinations.destination import Destination, Plain, plain_values
from sonosco_like.callbacks.naming import short_name, shown
from sonosco_like.events import Moment
from sonosco_like.serialization import serializable


@serializable
class ConsoleLog(Destination):
    """Prints a line per logged step. `only` are patterns of the names to print, such as `val_*`."""

    only: list[str] = field(default_factory=lambda: ["*"])

    def __post_init__(self) -> None:
        self._heading = ""
        self._values: dict[str, Plain] = {}

    def on_log(self, moment: Moment) -> None:
        wanted = {name: value for name, value in plain_values(moment.args["values"]).items() if self._is_wanted(name)}
        heading = f"epoch {moment.args['epoch']} step {moment.args['step']}"
        if heading != self._heading:
            self._print()
        self._heading = heading
        self._values |= wanted

    def on_fetch_start(self, moment: Moment) -> None:
        """Print what was logged since the last batch: nothing more will be logged of it."""
        self._print()

    def close(self) -> None:
        self._print()

    def _is_wanted(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.only)

    def _print(self) -> None:
        values, self._values = self._values, {}
        if values:
            print(self._heading, *(f"{short_name(name)} {shown(name, value)}" for name, value in values.items()))

"""Rows: what a benchmark reports beside what it prints, so that `python -m benchmarks` can make one table of all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROWS_FILE = "SONOSCO_BENCHMARK_ROWS"


@dataclass(frozen=True)
class Row:
    """One thing that was measured.

    `value` is a number in `unit`, by default a ratio to what `against` names, or words such as a verdict. `goal` is the
    most it may be, with `at_least` the least; words have to be those of the goal. Whether it was met is computed from
    the two, never claimed.
    """

    what: str
    value: float | str
    against: str = ""
    goal: float | str | None = None
    unit: str = "x"
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the goal was met; None without a goal, or without a measurement."""
        if self.goal is None or isinstance(self.value, str) != isinstance(self.goal, str):
            return None
        if isinstance(self.value, str) or isinstance(self.goal, str):
            return self.value == self.goal
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    def cells(self) -> tuple[str, str, str, str, str]:
        """What was measured, value, against what, goal, and whether it was met, as text."""
        goal, met = self.goal, {True: "yes", False: "no", None: ""}[self.met]
        if isinstance(goal, float | int):
            goal = f"{'at least' if self.at_least else 'at most'} {goal:g} {self.unit}"
        value = self.value if isinstance(self.value, str) else f"{self.value:.4g} {self.unit}"
        return self.what, value, self.against, goal or "", met


def report(*rows: Row) -> None:
    """Hand rows to the table, if one is being made; a benchmark that is run by itself only prints."""
    if ROWS_FILE in os.environ:
        with Path(os.environ[ROWS_FILE]).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(row)) + "\n" for row in rows)


def report_ratio(what: str, seconds: Mapping[str, float], name: str, reference: str, goal: float | None = None) -> None:
    """One candidate of `take_turns` as a ratio to another."""
    report(Row(f"{what}: {name}", seconds[name] / seconds[reference], reference, goal))


def read_rows(path: Path) -> list[Row]:
    """What was reported to a file."""
    return [Row(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]

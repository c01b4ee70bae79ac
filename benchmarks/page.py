"""The table in docs/benchmarks.md: a run replaces the rows of what it measured, all other rows and the prose stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import Row
from sonosco_like.errors import UsageError

BEGIN = "<!-- begin: written by python -m benchmarks --write -->"
END = "<!-- end: written by python -m benchmarks --write -->"
HEAD = [
    "| `python -m benchmarks` | measured | value | against | goal | met | run |",
    "|---|---|---:|---|---|---|---|",
]
_ROW = re.compile(r"\| `(?P<benchmark>\w+)[^`]*` \|.* \| (?P<run>[^|]+) \|")
_RUN = re.compile(r"- (?P<run>[^:]+:\d\d:\d\d): ")


@dataclass(frozen=True)
class Run:
    """When, how and where rows were measured."""

    time: str
    command: str
    machine: str
    load: str

    def line(self) -> str:
        """Its entry in the list of runs; rows point to it by its time."""
        return f"- {self.time}: `{self.command}`; {self.machine}; {self.load}"


class Page:
    """A Markdown file with two marks, between which the table lives; `known` are the benchmarks there are, in order."""

    def __init__(self, path: Path, known: Sequence[str]) -> None:
        self.path, self.known = path, known
        self._parts()

    def put(self, benchmark: str, command: str, rows: Sequence[Row], run: Run) -> None:
        """Replace the rows of one benchmark. Those of benchmarks that are there no more go too."""
        before, block, after = self._parts()
        others = set(self.known) - {benchmark}
        lines = [line for line in block if (found := _ROW.fullmatch(line)) and found["benchmark"] in others]
        lines += [_line(command, row, run) for row in rows]
        parsed = [found for line in lines if (found := _ROW.fullmatch(line))]
        parsed.sort(key=lambda found: self.known.index(found["benchmark"]))  # rows of one benchmark keep their order
        runs = {found["run"]: line for line in block if (found := _RUN.match(line))} | {run.time: run.line()}
        listed = [line for time, line in sorted(runs.items()) if time in {found["run"] for found in parsed}]
        text = [BEGIN, *HEAD, *(found[0] for found in parsed), "", "Runs:", "", *listed, END]
        self.path.write_text(before + "\n".join(text) + after, encoding="utf-8")

    def _parts(self) -> tuple[str, list[str], str]:
        """The text before the table, the lines of the table, and the text after it."""
        if not self.path.is_file():
            raise UsageError(f"There is no page {self.path} to write the table to.")
        text = self.path.read_text(encoding="utf-8")
        before, begin, rest = text.partition(BEGIN)
        block, end, after = rest.partition(END)
        if not begin or not end:
            raise UsageError(
                f"{self.path} has no place for the table: it needs the lines\n{BEGIN}\n{END}\nwhere it shall be."
            )
        return before, block.splitlines(), after


def _line(command: str, row: Row, run: Run) -> str:
    cells = [f"`{command}`", *row.cells(), run.time]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

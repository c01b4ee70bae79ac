"""How two runs of one config differ, clocks aside: at the end, and at the first step at which they do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonosco_like.run_folder import FINAL, METRICS, WITNESS
from sonosco_like.serialization import diff

_CLOCK = re.compile(r"(.*_)?(seconds?|time|wall|clock|elapsed|remaining)|seconds_.*")
_MACHINE = re.compile(r".*memory.*|(data_)?wait(ing)?(_.*)?|run_id")  # what a machine measures of itself
_FILES = re.compile(r"\btfevents\b")  # names and sizes of event files; what is in them is the points
_PARTS = re.compile(r"[^.\[\]'/]+")
_MOST_NAMED = 5
_END = 2**20  # bytes at the end of a witness, in which its last rows are


@dataclass(frozen=True)
class FirstDifference:
    """The first step after which two runs were not alike, and what was not."""

    step: int
    epoch: int
    names: tuple[str, ...]
    before_any_kill: bool

    def __str__(self) -> str:
        more = f" and {len(self.names) - _MOST_NAMED} more" if len(self.names) > _MOST_NAMED else ""
        return f"step {self.step} (epoch {self.epoch}): {', '.join(self.names[:_MOST_NAMED])}{more}"


def compare_runs(a: Path, b: Path) -> list[str]:
    """Where two finished runs differ: final trainers, then the rows of their metrics."""
    found = [str(each) for each in diff(a / FINAL, b / FINAL) if not is_clock(each.path)]
    left, right = list(_metrics(a)), list(_metrics(b))
    for line, rows in enumerate(zip(left, right, strict=False), 1):
        for name in dict.fromkeys([*rows[0], *rows[1]]):
            values = [row.get(name, "(absent)") for row in rows]
            if values[0] != values[1]:
                found.append(f"metrics.jsonl:{line}: step {rows[0].get('step')}: {name}: {values[0]} -> {values[1]}")
    if len(left) != len(right):
        found.append(f"metrics.jsonl: {len(left)} rows -> {len(right)} rows")
    return found


def first_difference(whole: Path, killed: Path) -> FirstDifference | None:
    """The first step that was not the same in a whole run and in one that was killed, by their witnesses.

    Steps that were lost in a kill and done again count as often as they were done.
    """
    expected = {row["step"]: row for row in _rows(whole / WITNESS)}
    rows = list(_rows(killed / WITNESS))
    for row in sorted(rows, key=lambda row: int(row["step"])):
        names = tuple(_differing(expected.get(row["step"], {}), row))
        if names:
            return FirstDifference(row["step"], row["epoch"], names, row["process"] == rows[0]["process"])
    return None


def steps_of(run: Path) -> int:
    """How many steps a run has done, by its witness."""
    return max((int(row["step"]) for row in _rows(run / WITNESS)), default=0)


def last_step_of(run: Path, process: int) -> int:
    """The last step that a process has done, by the end of the witness; 0 if it has done none."""
    path = run / WITNESS
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _END))
        rows = _parsed(file.read().decode(errors="replace"))
    return max((int(row["step"]) for row in rows if row["process"] == process), default=0)


def is_clock(path: str) -> bool:
    """Whether a value is a reading of the clock or of the machine, or belongs to a file that is named after one."""
    if _FILES.search(path):
        return True
    parts = _PARTS.findall(path) if ".state_dict" not in path else []
    return any(_CLOCK.fullmatch(part) or _MACHINE.fullmatch(part) for part in parts)


def _differing(expected: dict[str, Any], row: dict[str, Any]) -> Iterator[str]:
    """What differs between two rows of a step, in the order in which a batch makes it."""
    said = {"loss": "the loss", "rates": "the learning rate", "random": "the random generator"}
    yield from (text for name, text in said.items() if expected.get(name) != row[name])
    weights = expected.get("weights", {})
    yield from (f"the weights {name}" for name, value in row["weights"].items() if weights.get(name) != value)


def _metrics(folder: Path) -> Iterator[dict[str, Any]]:
    for row in _rows(folder / METRICS):
        yield {name: value for name, value in row.items() if not is_clock(name)}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    return _parsed(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else iter(())


def _parsed(text: str) -> Iterator[dict[str, Any]]:
    """The rows of JSON lines; one that a kill tore is passed over."""
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row

"""The progress of long work: a bar on a terminal, lines elsewhere, nothing for a call from Python."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TextIO, TypeAlias

Advance: TypeAlias = Callable[[float], None]
"""Called with the amount of work that was done since the last call."""

Progress: TypeAlias = Callable[[str, float | None, str], AbstractContextManager[Advance]]
"""Opens one stage of the work: its name, the amount to do if that is known, and the unit it is counted in."""

_SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BETWEEN_BARS = 0.1
_SCALES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


@contextlib.contextmanager
def no_progress(name: str, total: float | None, unit: str) -> Iterator[Advance]:
    """Show nothing: for calls from Python."""
    yield lambda amount: None


def show_progress(name: str, total: float | None, unit: str) -> AbstractContextManager[Advance]:
    """Show progress on standard error: a bar on a terminal, otherwise lines."""
    return _bar(name, total, unit) if sys.stderr.isatty() else _lines(name, total, unit, sys.stderr)


@contextlib.contextmanager
def _bar(name: str, total: float | None, unit: str) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Display

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[amount]}"))
    with Display(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as display:
        task = display.add_task(name, total=total, amount="")
        done, shown_at = 0.0, 0.0

        def advance(amount: float) -> None:
            nonlocal done, shown_at
            done += amount
            if time.monotonic() - shown_at >= _SECONDS_BETWEEN_BARS:  # drawing costs more than most steps
                shown_at = time.monotonic()
                display.update(task, completed=done, amount=_amount(done, total, unit))

        yield advance
        display.update(task, completed=done, amount=_amount(done, total, unit))


@contextlib.contextmanager
def _lines(name: str, total: float | None, unit: str, stream: TextIO) -> Iterator[Advance]:
    done, printed_at = 0.0, time.monotonic()

    def advance(amount: float) -> None:
        nonlocal done, printed_at
        done += amount
        if time.monotonic() - printed_at >= _SECONDS_BETWEEN_LINES:
            printed_at = time.monotonic()
            print(f"{name}: {_amount(done, total, unit)}", file=stream, flush=True)

    yield advance
    print(f"{name}: {_amount(done, total, unit)}", file=stream, flush=True)


def _amount(done: float, total: float | None, unit: str) -> str:
    if not total:
        return f"{_abbreviate(done)} {unit}"
    return f"{_abbreviate(done)} of {_abbreviate(total)} {unit} ({min(done / total, 1.0):.0%})"


def _abbreviate(amount: float) -> str:
    for prefix, scale in _SCALES:
        if amount >= 10 * scale:
            return f"{amount / scale:.1f}{prefix}"
    return f"{amount:.0f}"

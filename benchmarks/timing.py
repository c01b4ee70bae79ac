"""Ratios measured in one run: the candidates take turns, so that a noisy machine disturbs all of them alike."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

QUICK = "SONOSCO_BENCHMARK_QUICK"


def turns(repeats: int) -> int:
    """How often to repeat: once in a quick run, which tries whether a benchmark works and gives no numbers to keep."""
    return 1 if QUICK in os.environ else repeats


def take_turns(
    candidates: dict[str, Callable[[], object]], repeats: int = 7, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The median seconds of each candidate over interleaved repeats, after one round to warm up.

    A candidate that returns a float has measured itself. With `time.process_time` as the clock, what other processes do
    to the machine counts less.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(turns(repeats) + 1):
        for name, candidate in candidates.items():
            start = clock()
            measured = candidate()
            if turn:
                times[name].append(measured if isinstance(measured, float) else clock() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def print_ratios(seconds: dict[str, float], reference: str) -> None:
    """A table of milliseconds and of ratios to one of the candidates."""
    width = max(map(len, seconds))
    for name, value in seconds.items():
        print(f"{name:{width}}  {1000 * value:10.2f} ms  {value / seconds[reference]:6.2f} x")

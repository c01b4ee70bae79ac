"""How much of a batch is speech: our buckets against random batches and against sorting everything.

`python benchmarks/bench_sampling.py [--utterances 280000] [--budget 300]`. Cost is batches of the same budget per epoch
(how many the device must compute), as a ratio to the least possible: all speech, no padding, each batch full.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Row, report
from benchmarks.timing import turns
from sonosco_like.data.sampling import BucketSampler

REPEATS = 5
OURS = {"10 buckets": 10, "50 buckets": 50}


def librispeech_like(count: int) -> np.ndarray:
    """Lengths with the shape of LibriSpeech's training set."""
    random = np.random.default_rng(7)
    peak, flat, tail = random.normal(14.3, 1.2, count), random.uniform(1.3, 13, count), random.uniform(15, 24.5, count)
    kind = random.random(count)
    return np.clip(np.where(kind < 0.62, peak, np.where(kind < 0.98, flat, tail)), 1.3, 24.5)


def fill_in_order(lengths: np.ndarray, budget: float) -> tuple[float, int]:
    """Padded seconds and number of batches, if each batch takes what comes next as long as it fits."""
    padded, batches, size, longest = 0.0, 0, 0, 0.0
    for length in lengths.tolist():
        if size and (size + 1) * max(longest, length) > budget:
            padded, batches, size, longest = padded + size * longest, batches + 1, 0, 0.0
        size, longest = size + 1, max(longest, length)
    return padded + size * longest, batches + 1


def bucketed(buckets: int) -> Callable[[np.ndarray, float, int], tuple[float, int]]:
    """Ours."""

    def plan(lengths: np.ndarray, budget: float, epoch: int) -> tuple[float, int]:
        made = BucketSampler(batch_seconds=budget, buckets=buckets).plan(lengths, 0, epoch)
        return float(made.padded_seconds.sum()), len(made)

    return plan


def at_random(lengths: np.ndarray, budget: float, epoch: int) -> tuple[float, int]:
    """No regard for length."""
    return fill_in_order(np.random.default_rng(epoch).permutation(lengths), budget)


def all_sorted(lengths: np.ndarray, budget: float, epoch: int) -> tuple[float, int]:
    """The same batches in every epoch."""
    return fill_in_order(np.sort(lengths), budget)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--utterances", type=int, default=280_000)
    parser.add_argument("--budget", type=float, default=300.0)
    options = parser.parse_args()
    lengths = librispeech_like(options.utterances)
    ways = {"random order": at_random, "sorted": all_sorted, **{name: bucketed(size) for name, size in OURS.items()}}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    found = {}
    for epoch in range(turns(REPEATS)):
        for name, way in ways.items():
            begin = time.process_time()
            found[name] = way(lengths, options.budget, epoch)
            seconds[name].append(time.process_time() - begin)
    speech = float(lengths.sum())
    print(f"{len(lengths):,} utterances, {speech / 3600:.0f} h, {options.budget:g} s a batch")
    print(f"{'':14}{'padding':>9}{'budget used':>13}{'cost ratio':>12}{'plan s':>8}")
    for name, (padded, batches) in found.items():
        full = batches * options.budget
        line = f"{1 - speech / padded:9.1%}{padded / full:13.1%}{full / speech:12.3f}{min(seconds[name]):8.2f}"
        print(f"{name:14}{line}")
        report(
            Row(f"{name}: padding", 100 * (1 - speech / padded), "whole batches", 5.0 if name in OURS else None, "%")
        )
        if name in OURS:
            planned = min(seconds[name]) / min(seconds["sorted"])
            report(
                Row(f"{name}: budget used", 100 * padded / full, "full batches", 98.0, "%", at_least=True),
                Row(f"{name}: batches of an epoch", full / speech, "least possible"),
                Row(f"{name}: planning an epoch", planned, "filling batches in order"),
            )


if __name__ == "__main__":
    main()

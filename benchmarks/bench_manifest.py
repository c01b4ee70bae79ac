"""A manifest in columns against a list of dicts: time to open it, and memory with four workers that read all of it.

`python benchmarks/bench_manifest.py [--rows 1000000]`. Memory is what all processes hold together (PSS, so that shared
pages count once), in a fresh process for each kind, before the manifest is opened and after. Linux only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Row, report

WORKERS, MILLION = 4, 1_000_000
SECONDS_PER_WORD = 0.37
WORDS = ("the", "of", "and", "to", "in", "he", "that", "was", "his", "with", "for", "had", "you", "not", "from")


def write_rows(path: Path, rows: int) -> None:
    """Rows like those of LibriSpeech."""
    source = random.Random(0)
    with path.open("w", encoding="utf-8") as stream:
        for number in range(rows):
            speaker = source.randrange(2400)
            duration = round(source.triangular(1.3, 17.0, 14.5), 3)
            row = {
                "audio_filepath": f"train-clean-360/{speaker}/{7 * speaker}/{speaker}-{7 * speaker}-{number:07d}.flac",
                "duration": duration,
                "text": " ".join(source.choices(WORDS, k=int(duration / SECONDS_PER_WORD))),
                "speaker": str(speaker),
            }
            stream.write(json.dumps(row) + "\n")


def read_columns(path: Path) -> Sequence[Any]:
    """Ours."""
    from sonosco_like.data.manifest import Manifest

    return Manifest.read(path)  # type: ignore[return-value]


def read_dicts(path: Path) -> Sequence[Any]:
    """What one would write in three lines."""
    with path.open(encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


READERS: dict[str, Callable[[Path], Sequence[Any]]] = {"columns": read_columns, "list of dicts": read_dicts}


def megabytes(pid: int) -> float:
    """What a process holds, its share of pages it has in common with others."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("Pss:"))


def read_share(rows: Sequence[Any], worker: int, done: Any, leave: Any) -> None:
    """A worker's part of an epoch."""
    order = numpy.random.default_rng(worker).permutation(numpy.arange(worker, len(rows), WORKERS, dtype=numpy.int32))
    for index in order:  # an array, as our sampler has it: a list of numbers would cost more than the rows do
        rows[int(index)]
    done.release()
    leave.acquire()


def measure(kind: str, path: Path) -> dict[str, float]:
    """Open the manifest, let the workers read it, and look at all of them."""
    import torch  # noqa: F401 - what any training process holds anyway

    import sonosco_like.data.manifest  # noqa: F401

    me = multiprocessing.current_process().pid or 0
    before = megabytes(me)
    begin = time.perf_counter()
    rows = READERS[kind](path)
    opened = time.perf_counter() - begin
    alone = megabytes(me)
    context = multiprocessing.get_context("fork")
    done, leave = context.Semaphore(0), context.Semaphore(0)
    workers = [context.Process(target=read_share, args=(rows, number, done, leave)) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    for _ in workers:
        done.acquire()
    together = megabytes(me) + sum(megabytes(worker.pid or 0) for worker in workers)
    for _ in workers:
        leave.release()
    for worker in workers:
        worker.join()
    return {"seconds": opened, "before": before, "alone": alone, "together": together}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=MILLION)
    parser.add_argument("--measure", nargs=2, metavar=("KIND", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure[0], Path(options.measure[1]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "manifest.jsonl"
        write_rows(path, options.rows)
        print(f"{options.rows:,} rows, {path.stat().st_size / 1e6:.0f} MB, {WORKERS} workers")
        results = {}
        for kind in READERS:
            command = [sys.executable, __file__, "--measure", kind, str(path)]
            results[kind] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"{'':16}{'open s':>8}{'before MB':>11}{'opened MB':>11}{'workers MB':>12}")
    for kind, found in results.items():
        print(f"{kind:16}{found['seconds']:8.2f}{found['before']:11.0f}{found['alone']:11.0f}{found['together']:12.0f}")
    ours, theirs = results["columns"], results["list of dicts"]
    ratio = (theirs["together"] - theirs["before"]) / (ours["together"] - ours["before"])
    print(f"ratio (dicts / columns): {theirs['seconds'] / ours['seconds']:.2f} in time, {ratio:.1f} in memory added")
    what, goals = f"manifest of {options.rows:,} rows", (5.0, 500.0) if options.rows == MILLION else (None, None)
    everything = f"all that the process and {WORKERS} workers hold"
    report(
        Row(f"{what}: opening it", ours["seconds"], "", goals[0], "s"),
        Row(f"{what}: {everything}", ours["together"], "", goals[1], "MB"),
        Row(f"{what}: opening it", ours["seconds"] / theirs["seconds"], "list of dicts"),
        Row(f"{what}: memory added, workers too", 1 / ratio, "list of dicts"),
    )


if __name__ == "__main__":
    main()

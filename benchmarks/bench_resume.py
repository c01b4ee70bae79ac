"""The first batch after a resume: at batch 10 and at batch 1,000,000, beside passing over what came before.

`python benchmarks/bench_resume.py [--rows 1000050]`. A manifest of so many rows, one utterance a batch. Each resume is
what a run does: the manifest is opened, the plan of the epoch made, and the loader goes to its place. The ratio of the
two places is 1 if finding the place again costs the same anywhere.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Row, report, report_ratio
from benchmarks.timing import print_ratios, take_turns, turns
from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.features import LogMel
from sonosco_like.data.loader import AudioDataLoader
from sonosco_like.data.sampling import BucketSampler
from sonosco_like.data.text import Alphabet

EARLY, LATE = 10, 1_000_000
AS_FAST = 1.1  # what two equal times may differ by


def write_manifest(folder: Path, rows: int) -> Path:
    """Rows that all name one short recording, told apart by their ids."""
    soundfile.write(folder / "a.wav", np.random.default_rng(0).normal(0, 0.1, 8000), 16000)
    path = folder / "train.jsonl"
    with path.open("w") as file:
        for number in range(rows):
            file.write(f'{{"id": "u{number}", "audio_filepath": "a.wav", "duration": 0.5, "text": "a"}}\n')
    return path


def make_loader(manifest: Path) -> AudioDataLoader:
    """One utterance a batch, shuffled."""
    dataset = AudioDataset(manifest=manifest, features=LogMel(mels=8), tokenizer=Alphabet())
    return AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=1))


def first_batch_at(manifest: Path, position: int) -> float:
    """Seconds from nothing to the first batch of a resumed run."""
    begin = time.perf_counter()
    loader = make_loader(manifest)
    loader.load_state_dict({"epoch": 3, "position": position, "data": None})
    next(iter(loader))
    return time.perf_counter() - begin


def seconds_to_pass_over(loader: Any, batches: int) -> float:
    """What a loader without a position would pay for so many batches, measured on as many."""
    loader.seek(0)
    begin = time.perf_counter()
    for _, batch in zip(range(batches), loader, strict=False):
        assert batch is not None
    return time.perf_counter() - begin


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=LATE + 50)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    late = min(LATE, options.rows - 5)
    with tempfile.TemporaryDirectory() as temporary:
        manifest = write_manifest(Path(temporary), options.rows)
        whole = [
            (first_batch_at(manifest, EARLY), first_batch_at(manifest, late)) for _ in range(turns(options.repeats))
        ]
        loader = make_loader(manifest)
        loader.set_epoch(3)
        early, far = f"at batch {EARLY}", f"at batch {late:,}"
        print(f"{options.rows:,} rows, {len(loader):,} batches; manifest, plan and first batch:")
        seconds = {early: min(pair[0] for pair in whole), far: min(pair[1] for pair in whole)}
        print_ratios(seconds, early)
        report_ratio("manifest, plan and first batch of a resume", seconds, far, early, goal=AS_FAST)

        def at(position: int) -> None:
            loader.seek(position)
            next(iter(loader))

        print("the place and the first batch alone, in a process that has the manifest open:")
        seconds = take_turns({early: lambda: at(EARLY), far: lambda: at(late)})
        print_ratios(seconds, early)
        report_ratio("place and first batch of a resume", seconds, far, early, goal=AS_FAST)
        sample = 200
        each = seconds_to_pass_over(loader, sample) / sample
        print(f"passing over {late:,} batches instead: about {each * late / 60:.0f} minutes")
        what = f"passing over {late:,} batches instead, from {sample} of them"
        report(Row(what, each * late / seconds[far], "place and first batch"))


if __name__ == "__main__":
    main()

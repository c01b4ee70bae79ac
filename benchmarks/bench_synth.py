"""Where does the time of synthetic speech go, and what do more processes bring?

Prints the time per second of audio of each step, as a share of all, and the wall time of whole corpora relative to one
process. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Row, report
from benchmarks.timing import turns
from sonosco_like.data.corpora.channel import SAMPLE_RATE, draw_channel
from sonosco_like.data.corpora.espeak import Espeak, Prosody
from sonosco_like.data.corpora.grammar import draw_text
from sonosco_like.data.corpora.rendering import render_speaker, write_flac
from sonosco_like.data.corpora.speakers import draw_speaker, say
from sonosco_like.data.corpora.synth import plan_speakers, synthesize

VOICE = "gmw/en-US+m3"
UTTERANCES, REPEATS, MINUTES = 40, 5, 30.0


def step_seconds(folder: Path) -> dict[str, float]:
    """Seconds per second of audio of each step, espeak-ng's own process included, the best of interleaved repeats."""
    random = np.random.default_rng(0)
    texts = [draw_text("digits", random) for _ in range(UTTERANCES)]
    best: dict[str, float] = {}
    with Espeak() as engine:
        engine.set_voice(VOICE)
        speaker, channel = draw_speaker(VOICE, random), draw_channel(random, 1.0)
        voices = [say(engine, speaker, text, random) for text in texts]
        recorded = [channel.record(voice, random) for voice in voices]
        seconds = sum(len(voice) for voice in voices) / SAMPLE_RATE
        steps: dict[str, Callable[[int], object]] = {
            "espeak-ng alone": lambda n: engine.speak(texts[n], Prosody(speed=round(speaker.speed))),
            "words, pauses, resampling": lambda n: say(engine, speaker, texts[n], random),
            "room, microphone, noise": lambda n: channel.record(voices[n], random),
            "FLAC file": lambda n: write_flac(folder / f"{n}.flac", recorded[n]),
        }
        for _ in range(turns(REPEATS)):
            for name, step in steps.items():
                start = time.perf_counter()
                for number in range(UTTERANCES):
                    step(number)
                spent = (time.perf_counter() - start) / seconds
                best[name] = min(best.get(name, spent), spent)
    jobs = plan_speakers(folder / "speakers", "digits", 2.0, 0, 1.0)
    start = time.perf_counter()
    with Espeak() as engine:
        made = sum(spoken.duration for job in jobs for spoken in render_speaker(engine, job))
    best["whole speakers, one process"] = (time.perf_counter() - start) / made
    return best


def wall_seconds(folder: Path, workers: int) -> float:
    """How long a corpus takes, processes and manifests included."""
    start = time.perf_counter()
    synthesize(folder, minutes=MINUTES, workers=workers)
    return time.perf_counter() - start


def main() -> None:
    """Print both tables."""
    console = Console()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = step_seconds(folder)
        whole = steps["whole speakers, one process"]
        table = Table("step", "audio per second", "share of all")
        for step, spent in steps.items():
            table.add_row(step, f"{1 / spent:,.0f} s", f"{spent / whole:.0%}")
            if spent != whole:
                report(Row(f"synthetic speech: {step}", spent / whole, "whole speakers"))
        console.print(table)
        table = Table("processes", f"wall time of {MINUTES:.0f} minutes", "times as fast as one")
        counts = [1, *range(2, (os.cpu_count() or 1) + 1)]
        walls = {count: wall_seconds(folder / str(count), count) for count in counts}
        for count, wall in walls.items():
            table.add_row(str(count), f"{wall:.1f} s", f"{walls[1] / wall:.2f}")
        console.print(table)
        what = f"{MINUTES:.0f} minutes of synthetic speech, {counts[-1]} processes"
        report(
            Row(what, walls[counts[-1]], goal=60.0, unit="s"), Row(what, walls[counts[-1]] / walls[1], "one process")
        )


if __name__ == "__main__":
    main()

"""`synth`: a corpus of synthetic speech, made on the spot, the same bit for bit from the same seed."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

from sonosco_like.data.corpora.crew import render_speakers
from sonosco_like.data.corpora.espeak import require_espeak
from sonosco_like.data.corpora.grammar import grammar
from sonosco_like.data.corpora.rendering import SpeakerJob, Spoken
from sonosco_like.data.corpora.target import SPLITS, claim_target, write_manifests
from sonosco_like.data.corpora.voices import draw_voices, split_variants
from sonosco_like.data.tools.grouping import SHARES
from sonosco_like.data.tools.progress import Progress, no_progress
from sonosco_like.errors import UsageError
from sonosco_like.records import Utterance

_SECONDS_PER_SPEAKER = 12.0  # little, because unheard speakers teach more than more of the same ones
_FEWEST_SPEAKERS = 2


def synthesize(
    target: Path,
    kind: str = "digits",
    minutes: float = 30.0,
    seed: int = 0,
    variety: float = 1.0,
    workers: int | None = None,
    force: bool = False,
    progress: Progress = no_progress,
    begun: Callable[[], None] | None = None,
) -> dict[str, Path]:
    """Write `train`, `val` and `test` manifests and their audio into a folder; `minutes` is the length of all three.

    Voices and texts of the three are disjoint. `variety` from 0 to 1 is how much rooms, microphones, noise and loudness
    differ. Audio is made in `workers` processes (default: all processors); their number changes no bit.
    `begun` is called when the folder is claimed.
    """
    _check(kind, minutes, seed, variety, workers)
    require_espeak()
    claim_target(target, force)
    if begun is not None:
        begun()
    jobs = plan_speakers(target / "audio", kind, minutes, seed, variety)
    spoken: dict[str, list[Spoken]] = {split: [] for split in SPLITS}
    shown = progress(f"{kind} spoken by {len(jobs)} speakers", minutes * 60, "s")
    with closing(render_speakers(jobs, workers or _processors())) as rendered, shown as advance:
        for job, utterances in zip(jobs, rendered, strict=True):
            spoken[job.split] += utterances
            advance(sum(utterance.duration for utterance in utterances))
    return write_manifests(target, {split: map(_utterance, rows) for split, rows in spoken.items()})


def plan_speakers(folder: Path, kind: str, minutes: float, seed: int, variety: float) -> list[SpeakerJob]:
    """Who will speak: a pure function of its arguments."""
    variants = split_variants(np.random.default_rng(seed))
    jobs = []
    for number, split in enumerate(SPLITS, 1):  # from 1, because numpy takes [seed, 0] for [seed]
        seconds = minutes * 60 * SHARES[split]
        count = max(_FEWEST_SPEAKERS, round(seconds / _SECONDS_PER_SPEAKER))
        voices = draw_voices(variants[split], np.random.default_rng([seed, number]))
        for index, voice in enumerate(itertools.islice(voices, count), 1):
            jobs.append(
                SpeakerJob(
                    name=f"{split}-{index:04d}-{voice.rpartition('/')[2].replace(' ', '_')}",
                    voice=voice,
                    split=split,
                    kind=kind,
                    seconds=seconds / count,
                    variety=variety,
                    seed=(seed, number, index),
                    folder=folder,
                )
            )
    return jobs


def _processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _utterance(spoken: Spoken) -> Utterance:
    return Utterance(spoken.id, str(spoken.path), spoken.duration, spoken.text, spoken.speaker)


def _check(kind: str, minutes: float, seed: int, variety: float, workers: int | None) -> None:
    grammar(kind)
    if not (math.isfinite(minutes) and minutes > 0):
        raise UsageError(f"`minutes` must be a number above 0, got {minutes}.")
    if seed < 0:
        raise UsageError(f"`seed` must not be negative, got {seed}.")
    if not 0.0 <= variety <= 1.0:
        raise UsageError(f"`variety` must be from 0 (a quiet studio) to 1 (anything), got {variety}.")
    if workers is not None and workers < 1:
        raise UsageError(f"`workers` must be at least 1, got {workers}.")

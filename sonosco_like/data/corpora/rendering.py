"""One speaker of synthetic speech, from nothing to files.

Nothing here imports torch, so that a fresh process is ready in a fraction of a second. A speaker's files depend on its
`SpeakerJob` alone: which process renders it, and what that process did before, changes no bit.
"""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.random import Generator
from numpy.typing import NDArray

from sonosco_like.data.corpora.channel import SAMPLE_RATE, draw_channel
from sonosco_like.data.corpora.espeak import Espeak
from sonosco_like.data.corpora.grammar import draw_text
from sonosco_like.data.corpora.speaking import draw_speaker, say


@dataclass(frozen=True, slots=True)
class SpeakerJob:
    """One speaker to render: who it is, about how long it talks, and the numbers its randomness comes from."""

    name: str
    voice: str
    split: str
    kind: str
    seconds: float
    variety: float
    seed: tuple[int, ...]
    folder: Path


@dataclass(frozen=True, slots=True)
class Spoken:
    """One utterance on disk."""

    id: str
    path: Path
    duration: float
    text: str
    speaker: str


def render_speaker(engine: Espeak, job: SpeakerJob) -> list[Spoken]:
    """Write all utterances of a speaker as 16 kHz FLAC; as many as come nearest to `job.seconds`, at least one."""
    random = np.random.default_rng(job.seed)
    speaker, channel = draw_speaker(job.voice, random), draw_channel(random, job.variety)
    folder = job.folder / job.name
    folder.mkdir(parents=True, exist_ok=True)
    spoken: list[Spoken] = []
    total = 0.0
    engine.restart()
    engine.set_voice(job.voice)
    while not spoken or total + total / len(spoken) / 2 < job.seconds:
        text = _draw_text_of_split(job.kind, job.split, random)
        samples = channel.record(say(engine, speaker, text, random), random)
        path = folder / f"{len(spoken):04d}.flac"
        write_flac(path, samples)
        duration = len(samples) / SAMPLE_RATE
        spoken.append(Spoken(f"{job.name}-{path.stem}", path, duration, text, job.name))
        total += duration
    return spoken


def split_of_text(text: str) -> str:
    """The one split in which a text may be said: eight in ten texts are for training, one for each of the others."""
    return {8: "val", 9: "test"}.get(zlib.crc32(text.encode()) % 10, "train")


def write_flac(path: Path, samples: NDArray[np.int16]) -> None:
    """Write in one go: soundfile would wait for the disk after each file."""
    encoded = io.BytesIO()
    soundfile.write(encoded, samples, SAMPLE_RATE, subtype="PCM_16", format="FLAC")
    path.write_bytes(encoded.getbuffer())


def _draw_text_of_split(kind: str, split: str, random: Generator) -> str:
    while split_of_text(text := draw_text(kind, random)) != split:
        pass
    return text

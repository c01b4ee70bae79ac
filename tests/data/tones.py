"""Small corpora of tones, as real audio files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from signals import RATE

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def tone(seconds: float, frequency: float = 440.0, rate: int = RATE, channels: int = 1) -> np.ndarray:
    """A quiet sine, different in each channel."""
    time_N = np.arange(round(seconds * rate)) / rate
    samples = [0.3 * np.sin(2 * np.pi * frequency * (channel + 1) * time_N) for channel in range(channels)]
    return np.stack(samples, axis=1).astype(np.float32)


def write_tone(path: Path, seconds: float, **options: Any) -> Path:
    """A recording of a tone; its format follows from the suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, tone(seconds, **options), options.get("rate", RATE))
    return path


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """JSON lines as any other tool would write them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def make_corpus(folder: Path, lengths: list[float], name: str = "train.jsonl") -> Path:
    """A manifest with one recording for each length, tones of different pitch."""
    rows = []
    for number, seconds in enumerate(lengths):
        write_tone(folder / "wav" / f"{number:03d}.wav", seconds, frequency=200.0 + 10 * number)
        words = " ".join(WORDS[int(digit)] for digit in f"{number:03d}")
        rows.append({"audio_filepath": f"wav/{number:03d}.wav", "duration": seconds, "text": words})
    return write_rows(folder / name, rows)

"""Recordings of any common format as mono waveforms at the rate the features want.

Shape suffixes: N samples, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from sonosco_like.errors import DataError, UsageError

AUDIO_SUFFIXES = frozenset({".aif", ".aiff", ".au", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".sph", ".wav"})
"""How files are called that are taken for recordings where a folder is searched for them."""


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """What the header of a recording says."""

    sample_rate: int
    channels: int
    frames: int
    format: str

    @property
    def duration(self) -> float:
        """Seconds of the whole recording."""
        return self.frames / self.sample_rate


def audio_info(path: str | Path) -> AudioInfo:
    """The header of a recording; no sample of it is decoded."""
    with _open(path) as file:
        return AudioInfo(file.samplerate, file.channels, file.frames, file.format)


def load_audio(path: str | Path, sample_rate: int, offset: float = 0.0, duration: float | None = None) -> Tensor:
    """The mono waveform `samples_N` (float32 in [-1, 1]) of `duration` seconds from `offset` on, or of all from there.

    Only the wanted part is decoded. A recording that ends earlier gives fewer samples: whether that is an error is for
    the caller to say, who knows what the manifest promised.
    """
    if sample_rate <= 0 or offset < 0 or (duration is not None and duration < 0):
        raise UsageError(
            f"`sample_rate` must be positive, `offset` and `duration` must not be negative; "
            f"got {sample_rate}, {offset} and {duration}."
        )
    samples_NC, rate = _read(path, offset, duration)
    samples_N = mono(samples_NC, path)
    if rate != sample_rate and len(samples_N):
        # soxr runs on one thread, so the bits are the same in a worker and in the main process
        samples_N = soxr.resample(samples_N, rate, sample_rate)
    return torch.from_numpy(np.clip(samples_N, -1.0, 1.0, dtype=np.float32))


def mono(samples_NC: NDArray[Any], name: str | Path) -> NDArray[np.float32]:
    """The mean of all channels; a sample that is no number is a `DataError` about what has this name."""
    samples_N = samples_NC[:, 0] if samples_NC.shape[1] == 1 else samples_NC.mean(axis=1, dtype=np.float32)
    if not np.isfinite(samples_N).all():
        raise DataError(f"{name} holds samples that are not numbers (NaN or infinite). Write it again.")
    return np.ascontiguousarray(samples_N, dtype=np.float32)


def _read(path: str | Path, offset: float, duration: float | None) -> tuple[np.ndarray, int]:
    with _open(path) as file:
        start = round(offset * file.samplerate)
        if start > file.frames:
            length = file.frames / file.samplerate
            raise DataError(f"{path} is {length:.3f} s long, but it was to be read from {offset:.3f} s on.")
        frames = -1 if duration is None else round(duration * file.samplerate)
        try:
            if start:
                file.seek(start)
            return file.read(frames, dtype="float32", always_2d=True), file.samplerate
        except (soundfile.LibsndfileError, RuntimeError) as error:
            raise DataError(f"{path} cannot be decoded: {error} It is broken, or not the format it claims.") from None


def _open(path: str | Path) -> soundfile.SoundFile:
    try:
        return soundfile.SoundFile(str(path))
    except (soundfile.LibsndfileError, TypeError) as error:  # TypeError: a .raw file, which does not say what it holds
        raise DataError(_cannot_open(Path(path), error)) from None


def _cannot_open(path: Path, error: Exception) -> str:
    if not path.exists():
        return f"{path} does not exist. Audio paths are relative to the folder of their manifest."
    if path.is_dir():
        return f"{path} is a folder, not a recording."
    if path.stat().st_size == 0:
        return f"{path} is empty (0 bytes)."
    return f"{path} cannot be read as audio: {error} Formats are WAV, FLAC, OGG and MP3."

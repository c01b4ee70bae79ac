"""Recordings of any common format as mono waveforms at the sample rate of the features.

Shape suffixes: N samples, C channels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import soundfile
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from sonosco_like.errors import DataError, UsageError
from sonosco_like.untrusted_files import check_regular_file

Floats: TypeAlias = NDArray[np.floating[Any]]
AUDIO_SUFFIXES = frozenset({".aif", ".aiff", ".au", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".sph", ".wav"})
"""Suffixes that count as audio when a folder is searched."""
MOST_SECONDS = 1e7  # four months; a recording that is longer is a mistake
_RATES = (1_000, 1_000_000)
_MOST_CHANNELS = 256
_UNKNOWN_LENGTH = 1 << 62  # libsndfile's length of a stream whose writer did not know it
_ALWAYS_ALLOWED = 1 << 26  # samples, 70 minutes at 16 kHz
_MOST_CLAIMED = 1024  # samples per byte; FLAC packs silence so densely
_MOST_EXPANSION = 64  # samples in memory per byte; Opus packs speech so densely
_URL = re.compile(r"(^|/)[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """The header of a recording."""

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
    with open_audio(path) as file:
        return AudioInfo(file.samplerate, file.channels, file.frames, file.format)


def load_audio(path: str | Path, sample_rate: int, offset: float = 0.0, duration: float | None = None) -> Tensor:
    """The mono waveform `samples_N` (float32 in [-1, 1]) of `duration` seconds from `offset` on, or of all from there.

    Only this part is decoded. A recording that ends earlier gives fewer samples; the caller, who knows the manifest,
    decides whether that is an error.
    """
    if sample_rate <= 0 or offset < 0 or (duration is not None and duration < 0):
        raise UsageError(
            f"`sample_rate` must be positive, `offset` and `duration` must not be negative; "
            f"got {sample_rate}, {offset} and {duration}."
        )
    if offset > MOST_SECONDS or (duration is not None and duration > MOST_SECONDS):
        raise DataError(f"{path} cannot be read from {offset} s on for {duration} s: no recording is that long.")
    samples_NC, rate = _read(path, sample_rate, offset, duration)
    samples_N = to_mono(samples_NC, path)
    if rate != sample_rate and len(samples_N):
        # soxr runs on one thread, so the bits are the same in a worker and in the main process
        samples_N = soxr.resample(samples_N, rate, sample_rate)
    return torch.from_numpy(np.clip(samples_N, -1.0, 1.0, dtype=np.float32))


def to_mono(samples_NC: NDArray[Any], name: str | Path) -> NDArray[np.float32]:
    """The mean of all channels. Raises DataError with this name if a sample is not a number."""
    samples_N = samples_NC[:, 0] if samples_NC.shape[1] == 1 else samples_NC.mean(axis=1, dtype=np.float32)
    if not np.isfinite(samples_N).all():
        raise DataError(f"{name} holds samples that are not numbers (NaN or infinite). Write it again.")
    return np.ascontiguousarray(samples_N, dtype=np.float32)


def _read(path: str | Path, sample_rate: int, offset: float, duration: float | None) -> tuple[np.ndarray, int]:
    with open_audio(path) as file:
        start = round(offset * file.samplerate)
        if start > file.frames:
            length = file.frames / file.samplerate
            raise DataError(f"{path} is {length:.3f} s long, and cannot be read from {offset:.3f} s on.")
        rest = file.frames - start
        frames = rest if duration is None else min(rest, round(duration * file.samplerate))
        _check_expansion(path, frames * max(file.channels, sample_rate / file.samplerate))
        try:
            if start:
                file.seek(start)
            return file.read(frames, dtype="float32", always_2d=True), file.samplerate
        except (soundfile.LibsndfileError, RuntimeError) as error:
            raise DataError(
                f"{path} cannot be decoded: {error} The file is broken, or its name claims another format."
            ) from None


def open_audio(path: str | Path) -> soundfile.SoundFile:
    """Open a recording for decoding. Raises DataError if the file is not audio or its header is impossible."""
    try:
        check_regular_file(Path(path))
        file = soundfile.SoundFile(str(path))
    except OSError as error:
        raise DataError(_missing_file_message(str(path), error)) from None
    except (soundfile.LibsndfileError, TypeError) as error:  # TypeError: a .raw file, which has no header
        if Path(path).stat().st_size == 0:
            raise DataError(f"{path} is empty (0 bytes).") from None
        raise DataError(f"{path} cannot be read as audio: {error} Formats are WAV, FLAC, OGG and MP3.") from None
    try:
        _check_header(file, path)
    except BaseException:
        file.close()
        raise
    return file


def _check_header(file: soundfile.SoundFile, path: str | Path) -> None:
    """Refuse impossible headers: at 1 Hz a second would become hours, and the length may be wrong."""
    if not _RATES[0] <= file.samplerate <= _RATES[1]:
        raise DataError(
            f"The header of {path} claims {file.samplerate:,} samples per second; {_RATES[0]:,} to {_RATES[1]:,} are "
            "possible. Write it again."
        )
    if file.channels > _MOST_CHANNELS:
        raise DataError(f"The header of {path} claims {file.channels:,} channels; {_MOST_CHANNELS} are possible.")
    most = _ALWAYS_ALLOWED + _MOST_CLAIMED * Path(path).stat().st_size
    if file.frames >= _UNKNOWN_LENGTH:
        raise DataError(f"The header of {path} has no length. Write it again, for example with: ffmpeg -i OLD NEW")
    if file.frames * file.channels > most:
        raise DataError(
            f"The header of {path} claims {file.frames:,} samples of {file.channels} channels, which cannot be in its "
            f"{Path(path).stat().st_size:,} bytes. Write it again."
        )


def _check_expansion(path: str | Path, samples: float) -> None:
    size = Path(path).stat().st_size
    if samples > _ALWAYS_ALLOWED + _MOST_EXPANSION * size:
        raise DataError(
            f"{path} would become {samples:,.0f} samples in memory, from {size:,} bytes, like an attack. Cut it "
            "into utterances if you trust it."
        )


def is_url(text: str) -> bool:
    """Whether the path of a recording is a URL, also if a folder was put before it and one slash was lost."""
    return _URL.search(text) is not None


def _missing_file_message(path: str, error: OSError) -> str:
    if is_url(path):
        return f"{path}: URLs are not read yet. Copy the recordings to a disk, and give their paths there."
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"{path} does not exist. Audio paths are relative to the folder of their manifest."
    return f"{path[:200]} cannot be opened: {error.strerror or error}."

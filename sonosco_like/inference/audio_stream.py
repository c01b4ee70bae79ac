"""Recordings of any length, rate and number of channels, block by block: three hours need no more memory than one.

Shape suffixes: N samples, C channels.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from sonosco_like.data.audio import AUDIO_SUFFIXES, AudioInfo, audio_info, load_audio, open_audio, to_mono
from sonosco_like.errors import DataError, UsageError

Samples = NDArray[np.float32]
STANDARD_INPUT = "-"
_BLOCK_SECONDS = 10.0
_CHUNK = 2**20
_HEADERLESS = ".raw"


@dataclass(frozen=True, slots=True)
class Recording:
    """An audio file, and the name by which its text is known."""

    path: Path
    name: str

    @property
    def display_name(self) -> str:
        """The name in messages."""
        return "The standard input" if self.name == STANDARD_INPUT else self.name


@contextmanager
def open_recordings(arguments: Sequence[str | Path]) -> Iterator[list[Recording]]:
    """The recordings in files, folders and `-`, the standard input; a missing file is reported when it is read."""
    if list(map(str, arguments)).count(STANDARD_INPUT) > 1:
        raise UsageError("Standard input can be read only once: give `-` once.")
    with tempfile.TemporaryDirectory(prefix="sonosco-") as spooled:
        found: list[Recording] = []
        for argument in map(str, arguments):
            if argument == STANDARD_INPUT:
                found.append(Recording(_spool(sys.stdin.buffer, Path(spooled) / "input"), STANDARD_INPUT))
            elif Path(argument).is_dir():
                found += _in_folder(Path(argument))
            else:
                found.append(Recording(Path(argument), argument))
        yield found


def _in_folder(folder: Path) -> list[Recording]:
    known = AUDIO_SUFFIXES | {f".{suffix.lower()}" for suffix in soundfile.available_formats()} - {_HEADERLESS}
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in known and path.is_file())
    if not found:
        raise UsageError(f"There is no audio in the folder {folder}: no file in it is named .wav, .flac, .mp3 ...")
    return [Recording(path, str(path)) for path in found]


def _spool(stream: BinaryIO, path: Path) -> Path:
    """Copy a stream into a file: decoders seek, and a pipe cannot."""
    with path.open("wb") as file:
        while chunk := stream.read(_CHUNK):
            file.write(chunk)
    return path


def read_blocks(path: Path, sample_rate: int, whole: float) -> Iterator[Samples]:
    """The mono waveform of a file at a sample rate: at once if it is up to `whole` seconds long, else in blocks.

    Raises DataError for a file that is not audio, and for audio without samples.
    """
    if not path.exists():
        raise DataError(f"There is no file {path}.")
    if path.suffix.lower() == _HEADERLESS:
        raise DataError(f"{path} has no header with its sample rate and format. Convert it, for example to WAV.")
    info = audio_info(path)
    if info.frames == 0:
        raise DataError(f"{path} holds no audio: it has a header, but no samples.")
    if info.duration <= whole:
        samples_N: Samples = load_audio(path, sample_rate).numpy()
        yield samples_N
    else:
        yield from _stream(path, info, sample_rate)


def _stream(path: Path, info: AudioInfo, sample_rate: int) -> Iterator[Samples]:
    resampler = soxr.ResampleStream(info.sample_rate, sample_rate, 1, dtype="float32")
    size = int(_BLOCK_SECONDS * info.sample_rate)
    with open_audio(path) as file:
        while True:
            try:
                block_NC = file.read(size, dtype="float32", always_2d=True)
            except (soundfile.LibsndfileError, RuntimeError) as error:
                raise DataError(f"{path} cannot be decoded: {error} The file is damaged in the middle.") from None
            samples_N = to_mono(block_NC, path)
            is_last = len(samples_N) < size
            if info.sample_rate != sample_rate:
                samples_N = resampler.resample_chunk(samples_N, last=is_last)
            if len(samples_N):
                yield np.clip(samples_N, -1.0, 1.0)
            if is_last:
                return


def to_waveform(audio: Any, sample_rate: int | None, wanted: int) -> Samples:
    """An array or tensor, mono or with a few channels along either axis, as mono samples at the wanted rate."""
    samples = np.asarray(audio, dtype=np.float32)
    if sample_rate is None:
        raise UsageError("An array has no sample rate: give `sample_rate` too, or the path of a file.")
    if samples.ndim == 1:
        samples = samples[:, None]
    if samples.ndim != 2 or not samples.size:
        raise UsageError(f"Audio must be an array of samples, or of samples and channels; got shape {samples.shape}.")
    if samples.shape[0] < samples.shape[1]:
        samples = samples.T
    samples_N = to_mono(samples, "The array")
    if sample_rate != wanted:
        samples_N = soxr.resample(samples_N, sample_rate, wanted)
    return np.clip(samples_N, -1.0, 1.0)

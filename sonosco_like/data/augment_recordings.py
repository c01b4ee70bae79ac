"""Augmentations that mix in other recordings: noise, and the echo of rooms (which can also be synthetic).

A problem of such a recording is a `UsageError`, not a `DataError`: the utterance for which the noise was
drawn is not at fault, so `on_bad: skip` must not hide the problem.

Shape suffix: N samples.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sonosco_like.data.audio import AUDIO_SUFFIXES, Floats, audio_info, load_audio
from sonosco_like.data.augment import WaveformAugmentation, check_range, mix_at_snr, power
from sonosco_like.data.manifest import Manifest
from sonosco_like.errors import DataError, UsageError
from sonosco_like.serialization import serializable


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of an audio file, or all of it."""

    path: str
    offset: float = 0.0
    duration: float | None = None

    def seconds(self) -> float:
        """The length of the part, from the manifest or the header of the file."""
        if self.duration is not None:
            return self.duration
        try:
            return audio_info(self.path).duration - self.offset
        except DataError as error:
            raise UsageError(f"A recording to mix in cannot be used: {error}") from None

    def read(self, sample_rate: int, start: float = 0.0, duration: float | None = None) -> Floats:
        """The samples of the part, or `duration` seconds of them from `start` on."""
        length = self.duration if duration is None else duration
        try:
            samples_N: Floats = load_audio(self.path, sample_rate, self.offset + start, length).numpy()
        except DataError as error:
            raise UsageError(f"A recording to mix in cannot be used: {error}") from None
        if not samples_N.size:
            raise UsageError(f"The recording {self.path} to mix in holds no audio.")
        return samples_N


def find_recordings(sources: Path | list[Path]) -> list[Excerpt]:
    """The recordings of audio files, folders and manifests, in the same order on every machine."""
    listed = sources if isinstance(sources, list) else [sources]
    found = [recording for source in listed for recording in _recordings_in(source)]
    if not found:
        raise UsageError(f"There is no audio to mix in: {', '.join(map(str, listed)) or 'the list of files'} is empty.")
    return found


def _recordings_in(source: Path) -> Iterator[Excerpt]:
    if not source.exists():
        raise UsageError(f"{source}, which should hold audio to mix in, does not exist (relative to {Path.cwd()}).")
    if source.is_dir():
        files = (path.relative_to(source).as_posix() for path in source.rglob("*") if _is_audio(path))
        yield from (Excerpt(str(source / name)) for name in sorted(files))
    elif _is_audio(source):
        yield Excerpt(str(source))
    else:
        yield from (Excerpt(row.audio_filepath, row.offset, row.duration) for row in _read_manifest(source))


def _read_manifest(manifest: Path) -> Manifest:
    try:
        return Manifest.read(manifest)
    except DataError as error:
        raise UsageError(f"A list of recordings to mix in cannot be used: {error}") from None


def _is_audio(path: Path) -> bool:
    return path.suffix.lower() in AUDIO_SUFFIXES


@serializable
class NoiseFiles(WaveformAugmentation):
    """Adds a drawn part of a drawn noise recording at a drawn ratio of speech to noise; a short one is repeated.

    `files` are audio files, folders of them or manifests. They are searched when they are first needed, so that a
    trained model can be loaded on a machine without them.
    """

    files: Path | list[Path]
    snr_db: tuple[float, float] = (5.0, 30.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("snr_db", self.snr_db)

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        noise = self._noises[random.integers(len(self._noises))]
        place, snr_db = random.random(), random.uniform(*self.snr_db)
        return mix_at_snr(samples_N, _read_part(noise, len(samples_N), sample_rate, place), snr_db)

    @functools.cached_property
    def _noises(self) -> list[Excerpt]:
        return find_recordings(self.files)


def _read_part(noise: Excerpt, size: int, sample_rate: int, place: float) -> Floats:
    """`size` samples of a recording; `place` in [0, 1) is their relative position."""
    spare = noise.seconds() - size / sample_rate
    if spare > 0:
        noise_N = noise.read(sample_rate, start=place * spare, duration=size / sample_rate)
    else:
        noise_N = noise.read(sample_rate)
        noise_N = np.roll(noise_N, -int(place * len(noise_N)))
    return np.resize(noise_N, size)


@serializable
class Reverberation(WaveformAugmentation):
    """Adds the echo of a room: a drawn impulse response from `responses`, or a synthetic one if there are none.

    A synthetic room is the direct sound and a tail of noise that falls by 60 dB within a drawn `decay_seconds`, softer
    than the direct sound by a drawn number of decibels `direct_db` (Polack's model). Length, loudness and the position
    of the direct sound stay the same.
    """

    responses: Path | list[Path] | None = None
    decay_seconds: tuple[float, float] = (0.1, 0.6)
    direct_db: tuple[float, float] = (0.0, 15.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("decay_seconds", self.decay_seconds, above=0)
        check_range("direct_db", self.direct_db)

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        response_N = self._draw_response(sample_rate, random)
        direct = int(np.argmax(np.abs(response_N)))
        from scipy.signal import oaconvolve  # takes a second to import

        wet_N: Floats = oaconvolve(samples_N, response_N)[direct : direct + len(samples_N)]
        loudness = power(wet_N)
        return wet_N * np.float32(np.sqrt(power(samples_N) / loudness) if loudness else 1.0)

    def _draw_response(self, sample_rate: int, random: np.random.Generator) -> Floats:
        if self.responses is None:
            return make_room_response(
                random.uniform(*self.decay_seconds), random.uniform(*self.direct_db), sample_rate, random
            )
        return _read_response(self._rooms[random.integers(len(self._rooms))], sample_rate)

    @functools.cached_property
    def _rooms(self) -> list[Excerpt]:
        assert self.responses is not None
        return find_recordings(self.responses)


def make_room_response(decay_seconds: float, direct_db: float, sample_rate: int, random: np.random.Generator) -> Floats:
    """The impulse response of a synthetic room: the direct sound, then decaying noise."""
    size = max(2, round(decay_seconds * sample_rate))
    fall_N = np.exp(np.linspace(0, -np.log(1000), size, dtype=np.float32))
    response_N = random.standard_normal(size, dtype=np.float32) * fall_N
    response_N[0] = 0
    response_N *= np.float32(np.sqrt(10 ** (-direct_db / 10) / np.square(response_N).sum()))
    response_N[0] = 1
    return response_N


@functools.lru_cache(maxsize=256)
def _read_response(room: Excerpt, sample_rate: int) -> Floats:
    response_N = room.read(sample_rate)
    if not response_N.any():
        raise UsageError(f"The impulse response {room.path} is silent. Remove it from `responses`.")
    return response_N

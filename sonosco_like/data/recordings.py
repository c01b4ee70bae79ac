"""Recordings to mix into utterances: noise, and impulse responses of rooms.

Whatever is wrong with them is a `UsageError`, not a `DataError`: an utterance is not to blame for the noise that was
drawn for it, so leaving out bad utterances must not hide the problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sonosco_like.data.audio import AUDIO_SUFFIXES, audio_info, load_audio
from sonosco_like.data.framing import Floats
from sonosco_like.data.manifest import Manifest
from sonosco_like.errors import DataError, UsageError


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of an audio file, or all of it."""

    path: str
    offset: float = 0.0
    duration: float | None = None

    def seconds(self) -> float:
        """Its length, from the manifest or the file's header."""
        if self.duration is not None:
            return self.duration
        try:
            return audio_info(self.path).duration - self.offset
        except DataError as error:
            raise UsageError(f"A recording to mix in is of no use: {error}") from None

    def read(self, sample_rate: int, start: float = 0.0, duration: float | None = None) -> Floats:
        """Its samples, or `duration` seconds of them from `start` on."""
        length = self.duration if duration is None else duration
        try:
            samples_N: Floats = load_audio(self.path, sample_rate, self.offset + start, length).numpy()
        except DataError as error:
            raise UsageError(f"A recording to mix in is of no use: {error}") from None
        if not samples_N.size:
            raise UsageError(f"The recording {self.path}, which was to be mixed in, holds no audio.")
        return samples_N


def recordings(sources: Path | list[Path]) -> list[Excerpt]:
    """What audio files, folders of them and manifests hold, in an order that is the same on every machine."""
    listed = sources if isinstance(sources, list) else [sources]
    found = [recording for source in listed for recording in _recordings_of(source)]
    if not found:
        raise UsageError(f"There is no audio to mix in: {', '.join(map(str, listed)) or 'the list of files'} is empty.")
    return found


def _recordings_of(source: Path) -> Iterator[Excerpt]:
    if not source.exists():
        raise UsageError(f"{source}, which should hold audio to mix in, does not exist (seen from {Path.cwd()}).")
    if source.is_dir():
        files = (path.relative_to(source).as_posix() for path in source.rglob("*") if _is_audio(path))
        yield from (Excerpt(str(source / name)) for name in sorted(files))
    elif _is_audio(source):
        yield Excerpt(str(source))
    else:
        yield from (Excerpt(row.audio_filepath, row.offset, row.duration) for row in _rows(source))


def _rows(manifest: Path) -> Manifest:
    try:
        return Manifest.read(manifest)
    except DataError as error:
        raise UsageError(f"A list of recordings to mix in is of no use: {error}") from None


def _is_audio(path: Path) -> bool:
    return path.suffix.lower() in AUDIO_SUFFIXES

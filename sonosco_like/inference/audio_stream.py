"""Recordings of any length, rate and number of channels, block by block: three hours need no more memory than one.

Long recordings are cut into chunks that a model takes at once. Chunks end in pauses, so that no word is cut. Where
there is no pause, a chunk overlaps with the one before it, and `merge_overlaps` keeps the words of the overlap once.

Shape suffixes: N samples, C channels, K frames of 10 ms."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from sonosco_like.data.audio import AUDIO_SUFFIXES, AudioInfo, audio_info, load_audio, open_audio, to_mono
from sonosco_like.errors import DataError, UsageError
from sonosco_like.inference.transcript import Segment
from sonosco_like.records import Hypothesis, Token

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


Words = tuple[Token, ...]

LONGEST = 8.0  # seconds of a chunk, if the length of the training utterances is not known
OVERLAP = 2.0  # seconds that two chunks share if there is no pause between them
_FRAME = 0.01
_SHORTEST_PAUSE, _LONG_PAUSE = 0.12, 0.4  # seconds: between two words, between two phrases
_EARLIEST = 0.3  # share of the longest chunk; a cut before it would give too many chunks
_CONTRAST = 10.0  # dB between loud and quiet; with less, pauses cannot be separated from speech
_RANGE = 60.0  # dB; whatever is further below the loud level counts as equally quiet
_INAUDIBLE = 1e-4  # a chunk without a sample above this is silent


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a recording from `start` to `end` in seconds; if it `overlaps`, it shares audio with the one before."""

    samples_N: Samples
    start: float
    end: float
    overlaps: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether no sample is above the level of silence."""
        loudest = max(float(self.samples_N.max(initial=0.0)), -float(self.samples_N.min(initial=0.0)))
        return loudest <= _INAUDIBLE


@dataclass(frozen=True, slots=True)
class Segmenter:
    """Cuts waveforms into chunks of at most `longest` seconds; without a pause, two chunks share `overlap` seconds."""

    longest: float = LONGEST
    overlap: float = OVERLAP

    def __post_init__(self) -> None:
        if not 0 <= self.overlap <= self.longest / 2 or self.longest < 1:
            raise UsageError(
                f"`longest` must be at least 1 s, and `overlap` at most half of it; "
                f"got {self.longest:g} s and {self.overlap:g} s."
            )

    def chunks(self, blocks: Iterable[Samples], sample_rate: int) -> Iterator[Chunk]:
        """Cut a waveform that comes in blocks."""
        most, overlap = int(self.longest * sample_rate), int(self.overlap * sample_rate)
        rest_N = np.zeros(0, dtype=np.float32)
        start, overlaps = 0, False
        for block_N in blocks:
            rest_N = np.concatenate([rest_N, block_N])
            while len(rest_N) > most:
                pause = _pause_in(rest_N[:most], sample_rate)
                end = pause or most
                yield _chunk(rest_N[:end], start, sample_rate, overlaps)
                overlaps = pause is None and overlap > 0
                begin = end - overlap if overlaps else end
                start, rest_N = start + begin, rest_N[begin:]
        if len(rest_N):
            yield _chunk(rest_N, start, sample_rate, overlaps)


def _chunk(samples_N: Samples, start: int, sample_rate: int, overlaps: bool) -> Chunk:
    return Chunk(samples_N.copy(), start / sample_rate, (start + len(samples_N)) / sample_rate, overlaps)


def _pause_in(samples_N: Samples, sample_rate: int) -> int | None:
    """The middle of a pause, in samples: of the first long pause, else of the longest of the short ones.

    The first, not the last: attention models fail on chunks that are longer than their training utterances.
    """
    size = round(_FRAME * sample_rate)
    level_K = _levels(samples_N, size)
    loud = float(np.quantile(level_K, 0.95))
    if loud < 20 * np.log10(_INAUDIBLE):
        return len(samples_N)  # silence can be cut anywhere
    quiet = max(float(np.quantile(level_K, 0.05)), loud - _RANGE)
    if loud - quiet < _CONTRAST:
        return None
    starts, ends = _runs(level_K < quiet + 0.3 * (loud - quiet))
    middles, lengths = (starts + ends) // 2, (ends - starts) * _FRAME
    late = (middles >= _EARLIEST * len(level_K)) & (lengths >= _SHORTEST_PAUSE)
    middles, lengths = middles[late], lengths[late]
    if len(middles) == 0:
        return None
    long = np.flatnonzero(lengths >= _LONG_PAUSE)
    chosen = long[0] if len(long) else lengths.argmax()
    return int(middles[chosen]) * size


def _levels(samples_N: Samples, size: int) -> NDArray[np.float64]:
    """The power of each frame in dB, averaged with its neighbours so that a pitch period does not look like a pause."""
    frames = len(samples_N) // size
    frames_KN = samples_N[: frames * size].reshape(frames, size)
    power_K = np.einsum("kn,kn->k", frames_KN, frames_KN).astype(np.float64) / size
    power_K = np.convolve(power_K, np.full(3, 1 / 3), mode="same")
    level_K: NDArray[np.float64] = 10 * np.log10(power_K + 1e-12)
    return level_K


def _runs(marked_K: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The indices where runs of True begin, and those where they end."""
    edges = np.diff(np.concatenate([[False], marked_K, [False]]).astype(np.int8))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


def segment_of(chunk: Chunk, hypotheses: Sequence[Hypothesis]) -> Segment:
    """The hypotheses of a chunk as a segment of the recording, with times of the recording."""
    words = hypotheses[0].words if hypotheses else ()
    placed = tuple(
        replace(word, start=chunk.start + word.start, end=min(chunk.start + word.end, chunk.end)) for word in words
    )
    return Segment(chunk.start, chunk.end, placed, tuple(hypotheses))


def merge_overlaps(before: Segment, after: Segment) -> tuple[Segment, Segment]:
    """Two overlapping segments as two that do not overlap.

    The words in the overlap are compared. The cut lies in the middle of the longest run of equal words, or, if no word
    is equal, in the middle of the overlap: near the edge of a chunk half a word may have been recognised.
    """
    tail = [index for index, word in enumerate(before.words) if word.end > after.start]
    head = [index for index, word in enumerate(after.words) if word.start < before.end]
    ending, beginning = [before.words[index].text for index in tail], [after.words[index].text for index in head]
    match = SequenceMatcher(None, ending, beginning, autojunk=False).find_longest_match()
    if match.size:
        kept = tail[match.a] + (match.size + 1) // 2
        first = head[match.b] + (match.size + 1) // 2
        words, following = before.words[:kept], after.words[first:]
    else:
        middle = (after.start + before.end) / 2
        words = tuple(word for word in before.words if word.start + word.end <= 2 * middle)
        following = tuple(word for word in after.words if word.start + word.end > 2 * middle)
    border = _border(words, following, (after.start + before.end) / 2)
    return replace(before, words=words, end=border), replace(after, words=following, start=border)


def _border(words: Words, following: Words, middle: float) -> float:
    """The time between the last word of one segment and the first word of the next."""
    earliest = words[-1].end if words else middle
    latest = following[0].start if following else middle
    return min(max(earliest, middle), latest) if earliest <= latest else (earliest + latest) / 2

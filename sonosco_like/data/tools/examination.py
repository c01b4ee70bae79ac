"""What is wrong with the recordings of a manifest: all of it, found before a training finds the first.

Every header is read; whole recordings are decoded as far as asked for, which finds those that were cut off.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import soundfile

from sonosco_like.data.audio import AUDIO_SUFFIXES, AudioInfo, audio_info, is_url, open_audio
from sonosco_like.data.dataset import TORN_SECONDS, TORN_SHARE
from sonosco_like.data.manifest import Manifest
from sonosco_like.data.tools.progress import Progress, no_progress
from sonosco_like.errors import DataError

Opening: TypeAlias = Literal["all", "sample", "none"]
"""Which recordings are decoded: all, about an hour of them, or none, of which then not even the header is read."""

_SAMPLE_SECONDS = 3600.0
_THREADS = 8  # reading headers is waiting for the disk
_AT_ONCE = 4096
_BLOCK = 1 << 16
_SILENCE = 1e-4
_LOW_RATE = 8000
_STREAMED = 0xFFFF0000  # sizes from here on are written by programs that did not know the length yet
_CUT_OFF = re.compile(r"data\s*:\s*(\d+) \(should be \d+\)")  # libsndfile's note on a file shorter than its header says
_SUFFIXES = {
    "WAV": {".wav"},
    "WAVEX": {".wav"},
    "RF64": {".wav"},
    "NIST": {".sph", ".wav"},
    "FLAC": {".flac"},
    "OGG": {".ogg", ".oga", ".opus"},
    "MP3": {".mp3"},
    "MPEG": {".mp3"},
    "AIFF": {".aif", ".aiff"},
    "AU": {".au"},
}
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Fault(NamedTuple):
    """What is wrong with a row: a word or two, what exactly, and whether a training can still use the row."""

    reason: str
    detail: str
    usable: bool = False


@dataclass
class Examination:
    """Faults by the index of their row, how many recordings have which sample rate, and how many were decoded."""

    faults: dict[int, list[Fault]] = field(default_factory=dict)
    sample_rates: Counter[int] = field(default_factory=Counter)
    recordings: int = 0
    decoded: int = 0


def examine_recordings(
    manifest: Manifest, opening: Opening = "sample", progress: Progress = no_progress
) -> Examination:
    """Look at every recording of a manifest once, however many rows it has."""
    rows: dict[str, list[int]] = {}
    for index, utterance in enumerate(manifest):
        rows.setdefault(utterance.audio_filepath, []).append(index)
    found = Examination(recordings=len(rows))
    if opening == "none":
        _note_missing(found, rows)
        return found
    headers: dict[str, AudioInfo] = {}
    for path, header in _in_threads(_header, list(rows), progress, "reading headers"):
        if isinstance(header, Fault):
            _note(found, rows[path], header)
        else:
            headers[path] = header
            found.sample_rates[header.sample_rate] += 1
            _note_header(found, manifest, path, header, rows[path])
    chosen = list(headers) if opening == "all" else list(_sample(headers))
    found.decoded = len(chosen)
    for path, fault in _in_threads(_decode, chosen, progress, "decoding recordings"):
        if fault is not None:
            _note(found, rows[path], fault)
    return found


def _note(found: Examination, rows: Iterable[int], fault: Fault) -> None:
    for index in rows:
        found.faults.setdefault(index, []).append(fault)


def _note_missing(found: Examination, rows: dict[str, list[int]]) -> None:
    for path, indices in rows.items():
        if not is_url(path) and not Path(path).is_file():
            _note(found, indices, Fault("missing file", path))


def _note_header(found: Examination, manifest: Manifest, path: str, header: AudioInfo, rows: Sequence[int]) -> None:
    suffix = Path(path).suffix.lower()
    if suffix in AUDIO_SUFFIXES and suffix not in _SUFFIXES.get(header.format, {suffix}):
        _note(found, rows, Fault("wrong format", f"{path} is {header.format} by its content", usable=True))
    if header.sample_rate < _LOW_RATE:
        _note(found, rows, Fault("low rate", f"{path} has {header.sample_rate} samples a second", usable=True))
    for index in rows:
        fault = _wrong_duration(manifest, index, header.duration, is_whole=len(rows) == 1)
        if fault:
            _note(found, [index], fault)


def _wrong_duration(manifest: Manifest, index: int, seconds: float, is_whole: bool) -> Fault | None:
    """A row that goes on after the end of its recording, or that leaves out the rest of one it has for itself."""
    row = manifest[index]
    tolerance = max(TORN_SECONDS, TORN_SHARE * row.duration)
    end = row.offset + row.duration
    said = f"the row ends at {end:.2f} s, {row.audio_filepath} at {seconds:.2f} s"
    if end - seconds > tolerance:
        return Fault("ends early", said)
    if is_whole and row.offset == 0 < row.duration and seconds - end > tolerance:
        return Fault("wrong duration", said, usable=True)
    return None


def _header(path: str) -> AudioInfo | Fault:
    try:
        header = audio_info(path)
    except DataError as error:
        is_missing = not is_url(path) and not Path(path).exists()
        return Fault("missing file", path) if is_missing else Fault("unreadable", str(error))
    return header if header.frames else Fault("empty", f"{path} has no samples")


def _sample(headers: dict[str, AudioInfo]) -> Iterator[str]:
    """Recordings from all of the manifest, of about an hour together."""
    seconds = sum(header.duration for header in headers.values())
    share = min(1.0, _SAMPLE_SECONDS / seconds) if seconds else 1.0
    taken = 0.0
    for number, path in enumerate(headers):
        if (number + 1) * share >= taken + 1 - 1e-9:
            taken += 1
            yield path


def _decode(path: str) -> Fault | None:
    """What decoding all of a recording shows."""
    loudest, frames = 0.0, 0
    try:
        with open_audio(path) as file:
            cut_off, expected = _CUT_OFF.search(file.extra_info), file.frames
            tolerated = max(TORN_SECONDS * file.samplerate, TORN_SHARE * expected)  # some MP3 headers are estimates
            while len(block_NC := file.read(_BLOCK, dtype="float32", always_2d=True)):
                frames += len(block_NC)
                loudest = max(loudest, float(np.abs(block_NC).max(initial=0.0)))
    except DataError as error:
        return Fault("unreadable", str(error))
    except (soundfile.LibsndfileError, RuntimeError) as error:
        return Fault("truncated", f"{path} breaks off after {frames} samples: {error}")
    if expected - frames > tolerated:
        return Fault("truncated", f"{path} has {frames} of {expected} samples")
    if cut_off and int(cut_off[1]) < _STREAMED:
        return Fault("truncated", f"{path} is shorter than its header says", usable=True)
    if not np.isfinite(loudest):
        return Fault("unreadable", f"{path} holds samples that are not numbers")
    return Fault("silent", f"no sample of {path} is beyond {_SILENCE:g}") if loudest <= _SILENCE else None


def _in_threads(
    work: Callable[[_Item], _Result], items: Sequence[_Item], progress: Progress, name: str
) -> Iterator[tuple[_Item, _Result]]:
    if not items:
        return
    waiting = iter(items)
    with ThreadPoolExecutor(_THREADS) as pool, progress(name, len(items), "files") as advance:
        while batch := list(itertools.islice(waiting, _AT_ONCE)):
            for item, result in zip(batch, pool.map(work, batch), strict=True):
                advance(1)
                yield item, result

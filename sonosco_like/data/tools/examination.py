"""Finding all problems of the recordings of a manifest before training.

Every header is read; `opening` chooses how many recordings are decoded, which finds those that were cut off.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import soundfile

from sonosco_like.data.audio import AUDIO_SUFFIXES, AudioInfo, audio_info, is_url, open_audio
from sonosco_like.data.dataset import TORN_SECONDS, TORN_SHARE
from sonosco_like.data.manifest import Manifest
from sonosco_like.data.tools.files import in_threads
from sonosco_like.errors import DataError
from sonosco_like.progress import Progress, no_progress

Opening: TypeAlias = Literal["all", "sample", "none"]
"""Which recordings are decoded: all, about an hour of them, or none; with none, not even the headers are read."""

_SAMPLE_SECONDS = 3600.0
_BLOCK = 1 << 16
_SILENCE = 1e-4
_LOW_RATE = 8000
_STREAMED = 0xFFFF0000  # programs that did not know the length yet write sizes from here on
_CUT_OFF = re.compile(r"data\s*:\s*(\d+) \(should be \d+\)")  # libsndfile's note on a file that was cut off
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


class Fault(NamedTuple):
    """The problem of a row: its kind, the details, and whether a training can still use the row."""

    reason: str
    detail: str
    usable: bool = False


@dataclass
class Examination:
    """Faults by row, how many recordings have which sample rate and how many channels, and how many were decoded."""

    faults: dict[int, list[Fault]] = field(default_factory=dict)
    sample_rates: Counter[int] = field(default_factory=Counter)
    channels: Counter[int] = field(default_factory=Counter)
    recordings: int = 0
    decoded: int = 0


def examine_recordings(
    manifest: Manifest, opening: Opening = "sample", progress: Progress = no_progress
) -> Examination:
    """Examine every recording of a manifest once, also one with many rows."""
    rows: dict[str, list[int]] = {}
    for index, utterance in enumerate(manifest):
        rows.setdefault(utterance.audio_filepath, []).append(index)
    found = Examination(recordings=len(rows))
    if opening == "none":
        _add_missing(found, rows)
        return found
    headers: dict[str, AudioInfo] = {}
    for path, header in in_threads(_header, list(rows), progress, "reading headers"):
        if isinstance(header, Fault):
            _add_fault(found, rows[path], header)
        else:
            headers[path] = header
            found.sample_rates[header.sample_rate] += 1
            found.channels[header.channels] += 1
            _add_header_faults(found, manifest, path, header, rows[path])
    chosen = list(headers) if opening == "all" else list(_sample(headers))
    found.decoded = len(chosen)
    for path, fault in in_threads(_decode, chosen, progress, "decoding recordings"):
        if fault is not None:
            _add_fault(found, rows[path], fault)
    return found


def _add_fault(found: Examination, rows: Iterable[int], fault: Fault) -> None:
    for index in rows:
        found.faults.setdefault(index, []).append(fault)


def _add_missing(found: Examination, rows: dict[str, list[int]]) -> None:
    for path, indices in rows.items():
        if not is_url(path) and not Path(path).is_file():
            _add_fault(found, indices, Fault("missing file", path))


def _add_header_faults(
    found: Examination, manifest: Manifest, path: str, header: AudioInfo, rows: Sequence[int]
) -> None:
    suffix = Path(path).suffix.lower()
    if suffix in AUDIO_SUFFIXES and suffix not in _SUFFIXES.get(header.format, {suffix}):
        _add_fault(found, rows, Fault("wrong format", f"{path} is {header.format} by its content", usable=True))
    if header.sample_rate < _LOW_RATE:
        _add_fault(found, rows, Fault("low rate", f"{path} has {header.sample_rate} samples a second", usable=True))
    for index in rows:
        fault = _duration_fault(manifest, index, header.duration, is_whole=len(rows) == 1)
        if fault:
            _add_fault(found, [index], fault)


def _duration_fault(manifest: Manifest, index: int, seconds: float, is_whole: bool) -> Fault | None:
    """The fault of a row that ends after its recording, or that is its only row and leaves out the rest."""
    row = manifest[index]
    tolerance = max(TORN_SECONDS, TORN_SHARE * row.duration)
    end = row.offset + row.duration
    detail = f"the row ends at {end:.2f} s, {row.audio_filepath} at {seconds:.2f} s"
    if end - seconds > tolerance:
        return Fault("ends early", detail)
    if is_whole and row.offset == 0 < row.duration and seconds - end > tolerance:
        return Fault("wrong duration", detail, usable=True)
    return None


def _header(path: str) -> AudioInfo | Fault:
    try:
        header = audio_info(path)
    except DataError as error:
        is_missing = not is_url(path) and not Path(path).exists()
        return Fault("missing file", path) if is_missing else Fault("unreadable", str(error))
    return header if header.frames else Fault("empty", f"{path} has no samples")


def _sample(headers: dict[str, AudioInfo]) -> Iterator[str]:
    """Recordings from all parts of the manifest, about an hour in sum."""
    seconds = sum(header.duration for header in headers.values())
    share = min(1.0, _SAMPLE_SECONDS / seconds) if seconds else 1.0
    taken = 0.0
    for number, path in enumerate(headers):
        if (number + 1) * share >= taken + 1 - 1e-9:
            taken += 1
            yield path


def _decode(path: str) -> Fault | None:
    """The fault that decoding a whole recording shows, if any."""
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
        return Fault("truncated", f"{path} is shorter than the length in its header", usable=True)
    if not np.isfinite(loudest):
        return Fault("unreadable", f"{path} holds samples that are not numbers")
    return Fault("silent", f"no sample of {path} is above {_SILENCE:g}") if loudest <= _SILENCE else None

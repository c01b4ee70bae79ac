"""Finding all problems of the recordings and texts of a manifest before training: each would stop a run, or spoil it.

Of the recordings every header is read; `opening` chooses how many are decoded, which finds those that were cut off,
that are hardly audible, or that were recorded too loud.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import soundfile
from numpy.typing import NDArray

from sonosco_like.data.audio import AUDIO_SUFFIXES, AudioInfo, audio_info, is_url, open_audio
from sonosco_like.data.dataset import TORN_SECONDS, TORN_SHARE, AudioDataset
from sonosco_like.data.manifest import Manifest
from sonosco_like.data.text import Tokenizer
from sonosco_like.data.tools.files import in_threads
from sonosco_like.errors import DataError
from sonosco_like.progress import Progress, no_progress
from sonosco_like.records import SPECIAL_SYMBOLS

Opening: TypeAlias = Literal["all", "sample", "none"]
"""Which recordings are decoded: all, about an hour of them, or none; with none, not even the headers are read."""

_SAMPLE_SECONDS = 3600.0
_BLOCK = 1 << 16
_SILENCE = 1e-4
_QUIET = 0.01  # 40 dB below full scale: what a microphone that is turned off or far away gives
_FULL_SCALE, _CLIPPED_SHARE = 0.999, 0.001
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


REMEDIES = {
    "missing file": "Correct `audio_filepath`, which is relative to the folder of the manifest, or remove the rows.",
    "unreadable": "Convert the recordings to WAV or FLAC, or remove the rows.",
    "empty": "Remove the rows.",
    "truncated": "Copy or convert the recordings again, or remove the rows.",
    "ends early": "Write the manifest again from its recordings (sonosco data manifest), or remove the rows.",
    "wrong duration": "Batches are planned by these durations: write the manifest again (sonosco data manifest).",
    "silent": "Record again, or remove the rows.",
    "quiet": "Listen to some. Features are normalized, so speech stays usable, but noise is raised with it.",
    "clipped": "Listen to some. Record at a lower level; if they sound distorted, remove the rows.",
    "wrong format": "Give the files the right ending.",
    "low rate": "Record at 16,000 samples per second or more.",
    "no text": "Remove the rows, unless the model is to learn silence from them.",
    "no label": "Add the characters to the tokenizer, replace them in the `cleaner`, or set the tokenizer's `missing`.",
    "other case": "Set `case` of the dataset's `cleaner` to the case of the tokenizer.",
    "other alphabet": "Give the tokenizer the characters of these texts; see docs/languages.md.",
    "too long for CTC": "Use word pieces (sonosco data pieces) or smaller strides in the encoder, or remove the rows.",
}  # fmt: skip
"""What to do about each kind of fault."""


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


@dataclass(frozen=True)
class Finding:
    """All rows with the same kind of fault: how many there are, and the indices and details of the first ones."""

    reason: str
    usable: bool
    count: int
    examples: list[tuple[int, str]]

    def describe(self, manifest: Manifest, most: int) -> str:
        """The count, the remedy, and the first rows, each in a line of its own."""
        rows = f"{self.count:,} row{'s' * (self.count != 1)}"
        lines = [f"{manifest.name}: {rows}: {self.reason}. {REMEDIES[self.reason]}"]
        for index, detail in self.examples[:most]:
            is_alone = len(manifest.paths) == 1  # then its folder stands above
            place = f"{manifest.path.name}, row {manifest.row(index)}" if is_alone else manifest.place(index)
            lines.append(f"  {place} ({manifest[index].id}): {detail}")
        more = self.count - len(lines) + 1
        return "\n".join([*lines, *([f"  and {more:,} more row{'s' * (more > 1)}"] if more else [])])


def group_faults(faults: dict[int, list[Fault]]) -> list[Finding]:
    """The faults of rows by their kind: first those that make a row unusable, and of these the most frequent."""
    groups: dict[tuple[str, bool], list[tuple[int, str]]] = {}
    for index in sorted(faults):
        for fault in faults[index]:
            groups.setdefault((fault.reason, fault.usable), []).append((index, fault.detail))
    findings = [Finding(reason, usable, len(rows), rows) for (reason, usable), rows in groups.items()]
    return sorted(findings, key=lambda each: (each.usable, -each.count))


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
    loudest, frames, clipped = 0.0, 0, 0
    try:
        with open_audio(path) as file:
            cut_off, expected = _CUT_OFF.search(file.extra_info), file.frames
            tolerated = max(TORN_SECONDS * file.samplerate, TORN_SHARE * expected)  # some MP3 headers are estimates
            while len(block_NC := file.read(_BLOCK, dtype="float32", always_2d=True)):
                level_NC = np.abs(block_NC)
                frames += len(block_NC)
                clipped += int((level_NC >= _FULL_SCALE).any(axis=1).sum())
                loudest = max(loudest, float(level_NC.max(initial=0.0)))
    except DataError as error:
        return Fault("unreadable", str(error))
    except (soundfile.LibsndfileError, RuntimeError) as error:
        return Fault("truncated", f"{path} breaks off after {frames} samples: {error}")
    if expected - frames > tolerated:
        return Fault("truncated", f"{path} has {frames} of {expected} samples")
    if cut_off and int(cut_off[1]) < _STREAMED:
        return Fault("truncated", f"{path} is shorter than the length in its header", usable=True)
    return _level_fault(path, loudest, clipped / max(1, frames))


def _level_fault(path: str, loudest: float, clipped: float) -> Fault | None:
    if not np.isfinite(loudest):
        return Fault("unreadable", f"{path} holds samples that are not numbers")
    if loudest <= _SILENCE:
        return Fault("silent", f"no sample of {path} is above {_SILENCE:g}")
    if loudest < _QUIET:
        return Fault("quiet", f"no sample of {path} is above {loudest:.2g} of full scale", usable=True)
    if clipped > _CLIPPED_SHARE:
        return Fault("clipped", f"{100 * clipped:.1f} % of the samples of {path} are at full scale", usable=True)
    return None


Frames = Callable[[NDArray[np.float64]], NDArray[np.int64]]
"""How many encoded frames a model makes of utterances of these lengths in seconds."""

_EVERY = 1000  # rows between two signs of progress
_SHOWN = 40  # characters of a text in a message


def examine_texts(
    dataset: AudioDataset,
    indices: NDArray[np.int64],
    frames: Frames | None = None,
    progress: Progress = no_progress,
    skips_too_long: bool = False,
) -> dict[int, list[Fault]]:
    """The faults of the texts of some utterances, by their index in the manifest.

    With `frames`, a text that CTC cannot write in the frames of its utterance is a fault, too; with `skips_too_long` it
    does not stop a training. The counts that the dataset keeps of characters stay as they are.
    """
    cleaner, tokenizer = uncounted(dataset.cleaner), uncounted(dataset.tokenizer)
    tokenizer.missing = "drop"
    known = _Known(tokenizer)
    stops = dataset.tokenizer.missing == "error"
    available = frames(dataset.utterances.durations[indices]) if frames is not None else None
    found: dict[int, list[Fault]] = {}
    with progress(f"reading texts of {dataset.utterances.path.name}", len(indices), "rows") as advance:
        for place, index in enumerate(indices.tolist()):
            text = dataset.utterances[index].text
            text = cleaner(text) if cleaner else text
            labels, faults = known.encode(text, stops)
            needed = frames_for(labels)
            if available is not None and needed > available[place]:
                detail = f"{needed} frames are needed for {_shortened(text)!r}, there are {available[place]}"
                faults.append(Fault("too long for CTC", detail, usable=skips_too_long))
            if faults:
                found[index] = faults
            if (place + 1) % _EVERY == 0:
                advance(_EVERY)
        advance(len(indices) % _EVERY)
    return found


def frames_for(labels: list[int]) -> int:
    """The fewest frames in which CTC can write labels: equal neighbours need a blank between."""
    return len(labels) + sum(a == b for a, b in pairwise(labels))


def uncounted(part: Any) -> Any:
    """A copy of a cleaner or tokenizer that counts characters for itself."""
    own = copy(part)
    for name in ("dropped_counts", "missing_counts"):
        getattr(own, "__dict__", {}).pop(name, None)
    return own


class _Known:
    """The characters of a tokenizer, and what is meant by those that it does not have."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._characters = set("".join(tokenizer.symbols[len(SPECIAL_SYMBOLS) :]))
        self._scripts = _scripts_of(self._characters)

    def encode(self, text: str, stops: bool) -> tuple[list[int], list[Fault]]:
        """The labels of a text, and what is wrong with it; `stops` says whether a missing label stops a training."""
        counts = self._tokenizer.missing_counts
        counts.clear()
        try:
            labels = self._tokenizer.encode(text)
        except DataError as error:  # a tokenizer of the user's own need not know `missing`
            return [], [Fault("no label", str(error))]
        if counts:
            return labels, [self.fault(text, counts, usable=not stops)]
        return labels, [] if labels else [Fault("no text", "there is nothing to learn", usable=True)]

    def fault(self, text: str, missing: Iterable[str], usable: bool) -> Fault:
        """The fault of a text with characters that have no label."""
        unknown = list(dict.fromkeys(missing))
        listed = f"no label for {', '.join(map(repr, unknown))} in the text {_shortened(text)!r}"
        if all(each.swapcase() in self._characters for each in unknown):
            return Fault("other case", listed, usable)
        scripts = _scripts_of(unknown) - self._scripts
        if scripts and self._scripts and not (_scripts_of(text) & self._scripts):
            here, there = ", ".join(sorted(scripts)), ", ".join(sorted(self._scripts))
            return Fault("other alphabet", f"{here}, while the labels are {there}: {listed}", usable)
        return Fault("no label", listed, usable)


def _scripts_of(characters: Iterable[str]) -> set[str]:
    """The alphabets of letters, such as LATIN and CYRILLIC, by their Unicode names."""
    return {unicodedata.name(each, "UNNAMED").partition(" ")[0] for each in characters if each.isalpha()}


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."

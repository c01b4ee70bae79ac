"""The records that docs/dashboard.md describes, read from untrusted bytes."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonosco_like.edits import characters_of, words_of
from sonosco_like.errors import as_sentence

PLUGIN = "sonosco_transcripts"
VERSION = 1
_MOST_BYTES = 1 << 26  # what one part may grow to when it is unpacked


class UnreadableError(Exception):
    """A record is damaged or of another format; the message says why."""


@dataclass(frozen=True)
class Utterances:
    """The utterances of a validation set; the same for all steps that refer to them."""

    ids: list[str]
    references: list[str]
    durations: list[float]

    @cached_property
    def place(self) -> dict[str, int]:
        """The position of each utterance by id."""
        return {name: place for place, name in enumerate(self.ids)}

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Words and characters of each reference, as rows of two; an empty one counts as one, as in `ErrorCounts`."""
        lengths = [(len(words_of(text)), len(characters_of(text))) for text in self.references]
        return np.maximum(1, np.array(lengths, dtype=np.int64).reshape(-1, 2))


def header_of(content: bytes) -> dict[str, Any]:
    """The header of a record; raises UnreadableError if this version does not know its format."""
    header: dict[str, Any] = _parse(content, dict)
    if header.get("version") != VERSION or not isinstance(header.get("set"), str):
        raise UnreadableError(f"Transcripts of format {header.get('version')!r} are not known to this version.")
    return header


def utterances_of(packed: bytes) -> Utterances:
    """The utterances of a validation set."""
    columns = _parse(unpack(packed), dict)
    ids, references = require_texts(columns.get("ids")), require_texts(columns.get("references"))
    durations = columns.get("durations")
    if not isinstance(durations, list) or not len(ids) == len(references) == len(durations):
        raise UnreadableError("The columns of the utterances are not of one length.")
    if not all(isinstance(each, (int, float)) for each in durations):
        raise UnreadableError("A duration is not a number.")
    return Utterances(ids, references, durations)


def counts_of(packed: bytes, modes: int, utterances: int) -> NDArray[np.int32]:
    """Word and character errors, shape (modes, utterances, 2)."""
    content = unpack(packed)
    if len(content) != 8 * modes * utterances:
        raise UnreadableError(f"There should be errors of {utterances} utterances, but there are {len(content)} bytes.")
    return np.frombuffer(content, dtype="<i4").reshape(modes, utterances, 2)


def texts_of(packed: bytes) -> list[str]:
    """A list of texts."""
    return require_texts(_parse(unpack(packed), list))


def entries_of(packed: bytes) -> dict[str, dict[str, Any]]:
    """The entry of each sample by its id."""
    entries = _parse(unpack(packed), list)
    return {str(entry.get("id")): entry for entry in entries if isinstance(entry, dict)}


def require_texts(value: Any) -> list[str]:
    """The value; raises UnreadableError if it is not a list of texts."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UnreadableError("There should be a list of texts.")
    return value


def unpack(packed: bytes) -> bytes:
    """The content of a compressed part, up to a harmless size."""
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, _MOST_BYTES)
    except zlib.error as error:
        raise UnreadableError(f"A part cannot be unpacked: {as_sentence(error)}") from None
    if not unpacking.eof:
        raise UnreadableError("A part is torn, or larger than anything a training writes.")
    return content


def _parse(content: bytes, kind: type) -> Any:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"A part is not JSON: {as_sentence(error)}") from None
    if not isinstance(value, kind):
        raise UnreadableError(f"A part should be a {kind.__name__}, but is a {type(value).__name__}.")
    return value

"""Corrected transcripts become rows of a manifest, in one process that alone writes to the folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from sonosco_like.data.manifest import Manifest, write_manifest
from sonosco_like.errors import SonoscoError, UsageError
from sonosco_like.records import Utterance
from sonosco_like.server.children import Message, answer_questions
from sonosco_like.untrusted_files import open_without_links, refuse_links

MANIFEST = "corrections.jsonl"
_AUDIO, _LOCK = "audio", "lock"


class Collection:
    """A folder with a manifest and its recordings. What `save` has returned is on the disk, also after a power cut."""

    def __init__(self, folder: Path) -> None:
        self.manifest = folder / MANIFEST
        self._audio = folder / _AUDIO
        self._audio.mkdir(parents=True, exist_ok=True)
        refuse_links(folder, [MANIFEST, _AUDIO])
        known: Iterable[Utterance] = Manifest.read(self.manifest) if self.manifest.exists() else ()
        self._rows: dict[str, Utterance] = {row.id: row for row in known}

    def save(self, samples_N: NDArray[np.float32], rate: int, text: str) -> dict[str, Any]:
        """Add a row; the text of a recording that is there already is replaced."""
        text = clean_text(text)
        quantized_N = np.round(samples_N * 32767.0).astype("<i2")
        name = hashlib.sha256(f"{rate} ".encode() + quantized_N.tobytes()).hexdigest()[:20]
        before = self._rows.get(name)
        if before is None:
            path = self._audio / f"{name}.flac"
            _write_audio(path, quantized_N, rate)
            row = Utterance(name, str(path), round(len(quantized_N) / rate, 6), text)
        else:
            row = replace(before, text=text)
        if row != before:
            write_manifest(self.manifest, {**self._rows, name: row}.values())
            self._rows[name] = row
        saved = "added" if before is None else "unchanged" if row == before else "changed"
        return {"id": name, "saved": saved, "rows": len(self._rows)}


def clean_text(text: str) -> str:
    """A text for a manifest: words with single blanks between them, without control characters."""
    kept = "".join(" " if unicodedata.category(each) in ("Cc", "Zl", "Zp") else each for each in text)
    words = unicodedata.normalize("NFC", " ".join(kept.split()))
    if not words:
        raise UsageError("Give the text that was said; it is empty.")
    return words


def _write_audio(path: Path, samples_N: NDArray[np.int16], rate: int) -> None:
    """Write a recording aside, and give it its name when it is on the disk."""
    aside = path.with_name(f".{path.stem}.{secrets.token_hex(4)}")
    try:
        with aside.open("xb") as stream:
            soundfile.write(stream, samples_N, rate, format="FLAC", subtype="PCM_16")
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


@contextlib.contextmanager
def _only_process(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder; two servers would overwrite each other's rows."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    descriptor = open_without_links(folder / _LOCK)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise UsageError(f"Another server collects in {folder}. Give this one another folder.") from None
    try:
        yield
    finally:
        os.close(descriptor)


def collector_process(connection: Connection, folder: Path) -> None:
    """Answer questions (`rate`, `text`) by saving the waveform of the first part."""
    with _only_process(folder):
        collection = Collection(folder)

        def answer(question: Message) -> Message:
            samples_N = np.frombuffer(question.parts[0], dtype=np.float32)
            try:
                return Message(collection.save(samples_N, question.header["rate"], question.header["text"]))
            except UsageError as error:
                return Message({"kind": "refused", "error": str(error)})
            except (SonoscoError, OSError) as error:
                return Message({"kind": "failed", "error": f"Nothing was saved: {error}"})

        answer_questions(connection, answer)

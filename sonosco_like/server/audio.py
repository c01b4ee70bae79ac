"""Uploads become waveforms, in processes of their own: a file that breaks a decoder harms nobody else.

Only the bytes of an upload count, not its name or type. libsndfile reads most formats; PyAV reads WebM and MP4, the
formats in which browsers record. Shape suffixes: N samples, C channels.
"""

from __future__ import annotations

import io
import resource
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from sonosco_like.data.audio import to_mono
from sonosco_like.errors import DataError
from sonosco_like.server.children import Message, answer_questions

_RATES = (1_000, 384_000)
_MOST_CHANNELS = 32
_BLOCK = 1 << 18  # samples of all channels that are decoded at once
_MEMORY = 1 << 30  # bytes that a decoder may take for one upload
_WEBM, _MP4 = b"\x1a\x45\xdf\xa3", b"ftyp"
_FORMATS = "Send WAV, FLAC, MP3, OGG, Opus, WebM or MP4."


class UploadError(Exception):
    """An upload cannot be used; `kind` is `unreadable` or `too_long`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def decode(content: bytes, rates: list[int], most_seconds: float) -> tuple[list[NDArray[np.float32]], int]:
    """The mono waveform `samples_N` of an upload at each of the sample rates, 0 for its own; and its own rate."""
    try:
        samples_N, rate = _decoded(content, most_seconds)
    except DataError as error:
        raise UploadError("unreadable", str(error)) from None
    made = [samples_N if wanted in (rate, 0) else soxr.resample(samples_N, rate, wanted) for wanted in rates]
    return [np.clip(each, -1.0, 1.0, dtype=np.float32) for each in made], rate


def _decoded(content: bytes, most_seconds: float) -> tuple[NDArray[np.float32], int]:
    if not content:
        raise UploadError("unreadable", "The upload is empty.")
    blocks: list[NDArray[np.float32]] = []
    read = _blocks_by_pyav if content.startswith(_WEBM) or content[4:8] == _MP4 else _blocks_by_libsndfile
    rate = length = 0
    for block_NC, rate in read(content):
        if not _RATES[0] <= rate <= _RATES[1] or block_NC.shape[1] > _MOST_CHANNELS:
            raise UploadError("unreadable", f"The upload claims {block_NC.shape[1]} channels at {rate} Hz.")
        blocks.append(to_mono(block_NC, "The upload"))
        length += len(block_NC)
        if length > most_seconds * rate:
            raise UploadError("too_long", f"The recording is longer than {most_seconds:g} s. Send it in parts.")
    if not length:
        raise UploadError("unreadable", "The upload holds no audio: it has a header, but no samples.")
    return np.concatenate(blocks), rate


def _blocks_by_libsndfile(content: bytes) -> Iterator[tuple[NDArray[Any], int]]:
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            size = max(1, _BLOCK // file.channels)
            while len(block_NC := file.read(size, dtype="float32", always_2d=True)):
                yield block_NC, file.samplerate
    except soundfile.LibsndfileError as error:
        raise UploadError(
            "unreadable", f"The upload cannot be read as audio: {error.error_string} {_FORMATS}"
        ) from None
    except (RuntimeError, TypeError, ValueError):
        raise UploadError("unreadable", f"The upload cannot be read as audio. {_FORMATS}") from None


def _blocks_by_pyav(content: bytes) -> Iterator[tuple[NDArray[Any], int]]:
    import av

    av.logging.set_level(av.logging.PANIC)
    # the format is given: a playlist could name other files and addresses, which FFmpeg would open
    form = "matroska" if content.startswith(_WEBM) else "mov"
    try:
        with av.open(io.BytesIO(content), "r", format=form, options={"protocol_whitelist": "pipe"}) as container:
            if not container.streams.audio:
                raise UploadError("unreadable", "The upload has no sound in it.")
            stream = container.streams.audio[0]
            resampler = av.AudioResampler(format="fltp", layout=stream.layout, rate=stream.rate)
            for frame in container.decode(stream):
                for part in resampler.resample(frame):
                    yield part.to_ndarray().T, part.sample_rate
    except (av.FFmpegError, ValueError, IndexError) as error:
        raise UploadError("unreadable", f"The upload cannot be decoded: {type(error).__name__}. {_FORMATS}") from None


def decoder_process(connection: Connection, most_seconds: float) -> None:
    """Answer questions `rates` with the waveforms of the upload in the first part."""
    _limit_memory(_MEMORY)

    def answer(question: Message) -> Message:
        try:
            made, rate = decode(question.parts[0], question.header["rates"], most_seconds)
            return Message({"rate": rate}, [each.tobytes() for each in made])
        except UploadError as error:
            return Message({"kind": error.kind, "error": str(error)})
        except MemoryError:
            return Message({"kind": "too_long", "error": "The upload needs too much memory. Send it in parts."})

    answer_questions(connection, answer)


def _limit_memory(more: int) -> None:
    """Let this process take so many bytes more, and write no file."""
    status = Path("/proc/self/statm")
    if status.exists():
        used = int(status.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

"""Texts while somebody speaks: a WebSocket takes samples and sends what the model hears so far."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import struct
import time
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, WebSocket, WebSocketDisconnect

from sonosco_like.server.limits import RefusedError
from sonosco_like.server.service import Service

_MOST_STREAMS = 32
_STEP = 0.4  # seconds of new audio between two partial texts
_RATES = (8_000, 96_000)
_BYTES = 2  # of a sample


@dataclass
class _Speech:
    """What was said so far: 16-bit mono samples, and how much of it has its final partial text."""

    rate: int
    samples: bytearray = field(default_factory=bytearray)
    fixed: list[str] = field(default_factory=list)
    fixed_until: float = 0.0
    has_ended: bool = False

    @property
    def seconds(self) -> float:
        return len(self.samples) / _BYTES / self.rate

    def wav(self, start: float = 0.0) -> bytes:
        """The samples from a time on, as a file."""
        content = bytes(self.samples[_BYTES * round(start * self.rate) : len(self.samples) // _BYTES * _BYTES])
        form = struct.pack("<IHHIIHH", 16, 1, 1, self.rate, _BYTES * self.rate, _BYTES, 8 * _BYTES)
        return (
            b"RIFF" + struct.pack("<I", 36 + len(content)) + b"WAVEfmt " + form
            + b"data" + struct.pack("<I", len(content)) + content
        )  # fmt: skip


def add_stream(app: FastAPI, service: Service) -> None:
    """Add /v1/stream to an application."""
    open_streams: set[WebSocket] = set()

    @app.websocket("/v1/stream")
    async def stream(socket: WebSocket) -> None:
        await socket.accept()
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the client is gone
            try:
                if len(open_streams) >= _MOST_STREAMS:
                    raise RefusedError(429, "too_many_requests", f"{_MOST_STREAMS} streams are open. Try again later.")
                open_streams.add(socket)
                await _serve(socket, service)
                await socket.close()
            except RefusedError as error:
                await socket.send_json({"type": "error", **error.content})
                await socket.close(1008)
            finally:
                open_streams.discard(socket)


async def _serve(socket: WebSocket, service: Service) -> None:
    first = _parse(await _next(socket, service))
    if not service.access.knows(str(first.get("token", ""))):
        raise RefusedError(401, "wrong_token", "Give the token of this server as `token` in the first message.")
    rate = first.get("sample_rate")
    if not isinstance(rate, int) or not _RATES[0] <= rate <= _RATES[1]:
        raise RefusedError(422, "invalid_field", f"`sample_rate` must be from {_RATES[0]} to {_RATES[1]}.")
    (name,) = service.names([str(first["model"])] if first.get("model") else None)
    await socket.send_json({"type": "ready", "model": name})
    speech, arrived = _Speech(rate), asyncio.Event()
    partial = asyncio.create_task(_send_partial(socket, service, name, speech, arrived))
    try:
        await _listen(socket, service, speech, arrived, partial)
    finally:
        partial.cancel()
        await asyncio.gather(partial, return_exceptions=True)
    result: dict[str, Any] = {"text": "", "duration": 0.0, "words": [], "segments": []}
    if speech.samples:
        (result,) = await service.hear([name], speech.wav())
    await socket.send_json({"type": "final", "model": name, **result})


async def _listen(
    socket: WebSocket, service: Service, speech: _Speech, arrived: asyncio.Event, partial: asyncio.Task[None]
) -> None:
    """Take samples until the client stops; speech comes as fast as it is spoken, so there is an end to waiting."""
    end = time.monotonic() + 2 * service.limits.max_seconds + service.limits.timeout
    while not speech.has_ended:
        message = await _next(socket, service, end)
        if partial.done():
            partial.result()
        if isinstance(message, str):
            speech.has_ended = _parse(message).get("type") == "stop"
            continue
        speech.samples += message
        if speech.seconds > service.limits.max_seconds:
            most = service.limits.max_seconds
            raise RefusedError(413, "audio_too_long", f"A stream may have at most {most:g} s. Begin another one.")
        arrived.set()


async def _send_partial(
    socket: WebSocket, service: Service, name: str, speech: _Speech, arrived: asyncio.Event
) -> None:
    """Transcribe what is not fixed yet, again and again. All segments but the last one are fixed: a pause follows."""
    shown, heard_until = "", 0.0
    while True:
        await arrived.wait()
        arrived.clear()
        if speech.seconds - heard_until < _STEP:
            continue
        heard_until, start = speech.seconds, speech.fixed_until
        (heard,) = await service.hear([name], speech.wav(start))
        *done, _ = heard["segments"] or [None]
        if done:
            speech.fixed += [segment["text"] for segment in done if segment["text"]]
            speech.fixed_until = start + done[-1]["end"]
        last = heard["segments"][-1]["text"] if heard["segments"] else ""
        text = " ".join([*speech.fixed, last]).strip()
        if text != shown:
            shown = text
            await socket.send_json({"type": "partial", "text": text, "seconds": round(heard_until, 2)})


async def _next(socket: WebSocket, service: Service, end: float = math.inf) -> str | bytes:
    """The next message of the client, which has to come in time, and before the end."""
    seconds = min(service.limits.timeout, end - time.monotonic())
    try:
        message = await asyncio.wait_for(socket.receive(), seconds)
    except (TimeoutError, asyncio.TimeoutError):
        reason = "Nothing came in time" if seconds == service.limits.timeout else "The stream was open for too long"
        raise RefusedError(408, "timeout", f"{reason}. Begin another one.") from None
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    found = message.get("bytes")
    return message.get("text") or "" if found is None else found


def _parse(message: str | bytes) -> dict[str, Any]:
    try:
        content = json.loads(message)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise RefusedError(400, "bad_request", "Send JSON objects as text, and 16-bit samples as bytes.")
    return content

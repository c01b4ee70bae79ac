"""What the server refuses: too many, too large, too slow, without a token, or from another site's page."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException

from sonosco_like.server.metrics import Metrics

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_LARGEST_AT_A_TIME = 8  # requests of the largest size, whose bytes are held in memory
RETRY_AFTER = 2  # seconds until another try makes sense
_OPEN = ("/", "/healthz", "/docs", "/openapi.json")  # and everything below /static/: no token is needed for them
_CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Limits:
    """The limits of a server: bytes of a request, seconds of audio, requests at a time, seconds until an answer."""

    max_bytes: int = 32 << 20
    max_seconds: float = 120.0
    max_requests: int = 128
    timeout: float = 60.0

    @property
    def decoding(self) -> float:
        """Seconds that the decoding of one upload may take."""
        return min(10.0, self.timeout)


class RefusedError(Exception):
    """An answer with an error: its status, a code for programs and a message for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message

    @property
    def headers(self) -> dict[str, str]:
        """What the client should know besides."""
        found = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        return found | ({"Retry-After": str(RETRY_AFTER)} if self.status in (408, 429, 503) else {})

    @property
    def content(self) -> dict[str, Any]:
        """The error in the form that OpenAI's API has."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "param": None, "code": self.code}}


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach the host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Access:
    """Who may ask: whoever has the token; without a token, programs and pages of this machine."""

    def __init__(self, token: str | None, only_this_machine: bool) -> None:
        self._token, self._only_this_machine = token, only_this_machine

    def knows(self, given: str) -> bool:
        """Whether this is the token; takes equally long for every wrong one."""
        return self._token is None or hmac.compare_digest(given.encode(), self._token.encode())

    def check_site(self, headers: Headers) -> None:
        """Refuse pages of other sites, which a browser on this machine may have open.

        Such a page can send requests here, with its own `Origin`. A name of its own that leads to this machine would
        make it look like ours, so without a token only the machine's own names are accepted.
        """
        host = headers.get("host", "")
        if self._token is None and self._only_this_machine and not is_loopback(_name_of(host)):
            raise RefusedError(403, "wrong_host", "This server answers only to localhost and 127.0.0.1.")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise RefusedError(403, "other_site", "Pages of other sites may not use this server.")

    def check_token(self, path: str, headers: Headers) -> None:
        """Refuse a request without the token."""
        if path in _OPEN or path.startswith("/static/"):
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if self._token is not None and not (scheme.lower() == "bearer" and self.knows(given.strip())):
            raise RefusedError(401, "wrong_token", "Give the token of this server as `Authorization: Bearer TOKEN`.")


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


class Guard:
    """Stands before the application: applies the limits, and puts the headers of security on every answer."""

    def __init__(self, app: App, limits: Limits, access: Access, metrics: Metrics, paths: frozenset[str]) -> None:
        self._app, self._limits, self._access, self._metrics = app, limits, access, metrics
        self._paths = paths
        self._active = 0
        self._bytes = 0  # of the requests that are worked on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._open(scope, receive, send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._access.check_site(Headers(scope=scope))
        except RefusedError:
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.monotonic(), 0
        path = scope["path"] if scope["path"] in self._paths else "other"

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._guarded(scope, receive, send_with_headers)
        except RefusedError as error:
            if status == 0:
                await _refuse(error, receive, send_with_headers, 2 * self._limits.max_bytes)
        finally:
            self._metrics.requests.labels(path, str(status)).inc()
            self._metrics.seconds.labels(path).observe(time.monotonic() - began)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._access.check_site(headers)
        self._access.check_token(scope["path"], headers)
        if scope["method"] != "POST":
            return await self._app(scope, receive, send)
        size = self._size_of(headers)
        is_full = self._active >= self._limits.max_requests
        if is_full or (self._active and self._bytes + size > _LARGEST_AT_A_TIME * self._limits.max_bytes):
            message = f"{self._active} requests are worked on, as many as allowed. Try again a little later."
            raise RefusedError(429, "too_many_requests", message)
        self._active += 1
        self._bytes += size
        self._metrics.active.set(self._active)
        try:
            await asyncio.wait_for(self._app(scope, self._counted(receive), send), self._limits.timeout)
        except (TimeoutError, asyncio.TimeoutError):
            message = f"The answer took longer than {self._limits.timeout:g} s. Try again later, or send less audio."
            raise RefusedError(408, "timeout", message) from None
        finally:
            self._active -= 1
            self._bytes -= size
            self._metrics.active.set(self._active)

    def _size_of(self, headers: Headers) -> int:
        """The bytes that a request announces; the most that are allowed if it announces none."""
        length = headers.get("content-length", "")
        size = int(length) if length.isdecimal() and len(length) < 16 else self._limits.max_bytes
        if size > self._limits.max_bytes:
            raise self._too_large()
        return size

    def _too_large(self) -> RefusedError:
        most = math.floor(self._limits.max_bytes / 1e6)
        return RefusedError(
            413, "too_large", f"A request may have at most {most} MB. Send less audio, or as MP3 or OGG."
        )

    def _counted(self, receive: Receive) -> Receive:
        """Receive as before, up to the limit of bytes: the length in the header need not be true."""
        size = 0

        async def counted() -> MutableMapping[str, Any]:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._limits.max_bytes:
                error = self._too_large()
                raise HTTPException(error.status, error.message)
            return message

        return counted


async def _refuse(error: RefusedError, receive: Receive, send: Send, most: int) -> None:
    """Answer with an error, after some more of what the client sends: many read no answer before they have sent all."""
    end = time.monotonic() + RETRY_AFTER
    with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
        while most > 0:
            message = await asyncio.wait_for(receive(), max(0.0, end - time.monotonic()))
            most -= len(message.get("body", b""))
            if not message.get("more_body", False):
                break
    content = json.dumps(error.content).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), **error.headers}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": [*raw, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": content})

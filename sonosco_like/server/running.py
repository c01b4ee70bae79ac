"""The life of a server: start its processes, listen, and finish what was taken when it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from sonosco_like.errors import UsageError, as_sentence
from sonosco_like.process import STOP_SIGNALS, exit_at_once
from sonosco_like.server.app import make_app
from sonosco_like.server.children import CAN_FORK_FROM_SERVER, start_fork_server
from sonosco_like.server.limits import Access, Limits, is_loopback
from sonosco_like.server.metrics import Metrics
from sonosco_like.server.service import Service
from sonosco_like.server.workers import Helpers, Recognisers


@dataclass(frozen=True)
class Settings:
    """All that `sonosco serve` was told."""

    models: dict[str, Path]
    host: str = "127.0.0.1"
    port: int = 5000
    token: str | None = None
    workers: int = 1
    collect: Path | None = None
    limits: Limits = field(default_factory=Limits)
    modules: Sequence[str] = ()
    device: str | None = None
    longest: float | None = None
    decoder_options: dict[str, Any] = field(default_factory=dict)


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until a signal comes, then finish the requests that were taken."""
    if not CAN_FORK_FROM_SERVER:
        raise UsageError("`sonosco serve` needs Linux or macOS; on Windows, use it in WSL.")
    with contextlib.closing(_listen(settings.host, settings.port)) as listener:
        start_fork_server()
        asyncio.run(_serve(settings, listener, say))


async def _serve(settings: Settings, listener: socket.socket, say: Callable[[str], None]) -> None:
    metrics = Metrics()
    threads = None if "OMP_NUM_THREADS" in os.environ else max(1, (os.cpu_count() or 1) // settings.workers)
    loading = (
        settings.models, threads, tuple(settings.modules), settings.device, settings.longest, settings.decoder_options,
    )  # fmt: skip
    recognisers = Recognisers(settings.workers, loading, settings.limits, metrics)
    decoders = Helpers(
        settings.workers + 1, metrics, "A decoder", "audio", "decoder_process", settings.limits.max_seconds
    )
    async with contextlib.AsyncExitStack() as stack:
        parts: list[Recognisers | Helpers] = [recognisers, decoders]
        collector = None
        if settings.collect is not None:
            collector = Helpers(1, metrics, "The collector", "collect", "collector_process", settings.collect)
            parts.append(collector)
        for each in parts:
            stack.push_async_callback(each.close)
            await each.start()
        access = Access(settings.token, is_loopback(settings.host))
        service = Service(recognisers, decoders, settings.limits, access, metrics, collector)
        config = uvicorn.Config(
            make_app(service), lifespan="off", log_level="warning", access_log=False, server_header=False,
            proxy_headers=False,  # what they claim about the client is not used
            timeout_graceful_shutdown=round(settings.limits.timeout), timeout_keep_alive=30, ws="websockets-sansio",
            ws_max_size=1 << 20, backlog=512,
        )  # fmt: skip
        for name, about in recognisers.models.items():
            kind = about["architecture"] + ("" if about["kind"] == "run" else f", exported as {about['kind']}")
            say(f"{name}: {kind}, {about['parameters']:,} parameters, {about['sample_rate']} Hz")
        say(f"Serving at {_address(settings.host, listener)}  (Ctrl-C stops)")
        await _Web(config).serve(sockets=[listener])


class _Web(uvicorn.Server):
    """Uvicorn, for which a signal is the usual end and no error; a second one ends everything at once."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            exit_at_once(sig, "Stopped at once.")
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    """A socket that is bound; port 0 is a free one."""
    with contextlib.ExitStack() as stack:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = stack.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"The server cannot listen at {host}, port {port}: {as_sentence(reason)} Try another one."
            ) from None
        stack.pop_all()
        return listener


def _address(host: str, listener: socket.socket) -> str:
    shown = f"[{host.strip('[]')}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"

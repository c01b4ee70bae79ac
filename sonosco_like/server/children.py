"""Child processes that answer one question at a time, and can be killed and replaced.

A question and its answer are a header, which is JSON, and byte strings. Nothing that a child sends is executed here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from sonosco_like.errors import SonoscoError, UsageError
from sonosco_like.process import STOP_SIGNALS

_MOST_HEADER = 1 << 26
_MOST_PART = 1 << 30
CAN_FORK_FROM_SERVER = "forkserver" in multiprocessing.get_all_start_methods()
_FORKS = multiprocessing.get_context("forkserver" if CAN_FORK_FROM_SERVER else None)
_PRELOADED = ["sonosco_like.server.audio", "sonosco_like.server.recognition", "sonosco_like.server.collect"]


def start_fork_server() -> None:
    """Start the process from which all children are forked; it imports torch once, and a fork is there in an instant.

    A terminal or a service manager sends its signals to every process. The parent alone decides what they mean.
    """
    from multiprocessing import forkserver

    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOP_SIGNALS}
    try:
        _FORKS.set_forkserver_preload(_PRELOADED)
        forkserver.ensure_running()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class ChildLostError(Exception):
    """The child ended before it answered, or it was killed because it took too long."""

    def __init__(self, message: str, too_slow: bool = False) -> None:
        super().__init__(message)
        self.too_slow = too_slow


class Message(NamedTuple):
    """A question or an answer."""

    header: dict[str, Any]
    parts: list[bytes] = []  # noqa: RUF012  (never changed)


def send(connection: Connection, message: Message) -> None:
    """Send a message."""
    connection.send_bytes(json.dumps({**message.header, "parts": len(message.parts)}).encode())
    for part in message.parts:
        connection.send_bytes(part)


def receive(connection: Connection) -> Message:
    """The next message; raises EOFError or OSError if the other end is closed."""
    header = json.loads(connection.recv_bytes(_MOST_HEADER))
    return Message(header, [connection.recv_bytes(_MOST_PART) for _ in range(header.pop("parts"))])


def answer_questions(
    connection: Connection, answer: Callable[[Message], Message], about: dict[str, Any] | None = None
) -> None:
    """Say that this child is ready, and what it tells about itself; then answer until the other end is closed."""
    with contextlib.suppress(EOFError, OSError):
        send(connection, Message(about or {}))
        while True:
            send(connection, answer(receive(connection)))


def _live(module: str, work: str, connection: Connection, *arguments: Any) -> None:
    """The life of a child; it ends with its parent."""
    with contextlib.suppress(OSError):  # what `top` shows, on Linux
        Path("/proc/self/comm").write_text(work.replace("_process", ""))
    try:
        getattr(import_module(f"{__package__}.{module}"), work)(connection, *arguments)
    except Exception as error:  # whatever it is, the parent has to know why there is no child
        reason = str(error) if isinstance(error, SonoscoError | OSError) else f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            send(connection, Message({"error": reason}))


class Child:
    """A process that calls the function `work` of a module of this room, which the parent need not import."""

    def __init__(self, name: str, module: str, work: str, *arguments: Any) -> None:
        self.name = name
        self._arguments = (module, work), arguments
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._connection: Connection | None = None
        self._process: Any = None
        self.ended = asyncio.Event()

    async def start(self) -> dict[str, Any]:
        """Start the process and wait until it is ready; returns what it tells about itself."""
        self._process, self._connection = await self._in_thread(self._spawn)
        asyncio.get_running_loop().add_reader(self._process.sentinel, self._note_end)
        header: dict[str, Any] = (await self._in_thread(self._wait)).header
        if "error" in header:
            self.kill()
            raise UsageError(header["error"])
        return header

    @property
    def pid(self) -> int:
        """The number of the process."""
        return int(self._process.pid)

    async def ask(self, question: Message, seconds: float) -> Message:
        """The answer to a question; without one in time the child is killed."""
        exchange = asyncio.ensure_future(self._in_thread(self._exchange, question))
        exchange.add_done_callback(lambda done: done.cancelled() or done.exception())  # if nobody waits any more
        try:
            return await asyncio.wait_for(asyncio.shield(exchange), seconds)
        except (TimeoutError, asyncio.TimeoutError):
            self.kill()
            raise ChildLostError(f"{self.name} took longer than {seconds:g} s.", too_slow=True) from None
        except asyncio.CancelledError:
            self.kill()  # its answer would be taken for that to the next question
            raise
        except (EOFError, OSError, ValueError) as error:
            self.kill()
            raise ChildLostError(f"{self.name} ended before it answered.") from error

    def kill(self) -> None:
        """End the process at once."""
        self.ended.set()
        if self._process is not None:
            with contextlib.suppress(ValueError, RuntimeError):
                asyncio.get_running_loop().remove_reader(self._process.sentinel)
            self._process.kill()
        self._thread.shutdown(wait=False)

    def _note_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self.ended.set()

    def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _spawn(self) -> tuple[Any, Connection]:
        ours, theirs = _FORKS.Pipe()
        what, arguments = self._arguments
        process = _FORKS.Process(target=_live, args=(*what, theirs, *arguments), name=self.name, daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def _wait(self) -> Message:
        assert self._connection is not None
        try:
            return receive(self._connection)
        except (EOFError, OSError):
            return Message({"error": f"{self.name} ended before it was ready."})

    def _exchange(self, question: Message) -> Message:
        assert self._connection is not None
        send(self._connection, question)
        return receive(self._connection)

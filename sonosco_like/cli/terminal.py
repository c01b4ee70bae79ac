"""The terminal of a command: signals at any moment, and a console that may be closed.

Ctrl-C, SIGTERM and SIGHUP print one sentence and give exit code 130, 143 or 129. The first signal raises an exception,
so that a command can delete its unfinished files. A second signal ends the process at once. So does the first one
during an import, where other code could catch the exception, or take it for a missing package.
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
from types import FrameType
from typing import Any, NoReturn, TextIO

from sonosco_like.process import HANGUP, STOP_SIGNALS, exit_at_once

_SENTENCES = {signal.SIGINT: "Interrupted.", signal.SIGTERM: "Terminated."}
_GONE = (errno.EIO, errno.EPIPE, errno.EBADF, errno.ENXIO)  # the errors of a stream whose other end is closed

_received: list[int] = []
_printed: list[int] = []


def listen() -> None:
    """Handle signals from now on, except those that the parent process set to be ignored."""
    _received.clear()
    _printed.clear()
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    sys.unraisablehook = _on_unraisable
    atexit.register(_ignore_signals)  # registered first, so that it is called last


def stop_listening() -> None:
    """Let a signal end the process at once, since its work is done."""
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is _on_signal:
            signal.signal(number, _leave)


def _ignore_signals() -> None:
    """Ignore signals at exit, when Python restores the default handlers, which would change the exit code."""
    for number in STOP_SIGNALS:
        if signal.getsignal(number) in (_on_signal, _leave):
            signal.signal(number, signal.SIG_IGN)


def interrupted_by() -> int:
    """The number of the signal that was received, or 0."""
    return _received[0] if _received else 0


def report_signal(number: int) -> int:
    """Print the sentence for a signal, once; returns the exit code."""
    sentence = _sentence(number)
    if sentence:
        print(sentence, file=sys.stderr, flush=True)
    return 128 + number


def _on_signal(number: int, frame: FrameType | None) -> None:
    if _received and number == HANGUP:  # the system and the shell each send one when a terminal is closed
        return
    if _received or _is_importing(frame):
        _leave(number, frame)
    _received.append(number)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    exit_at_once(number, _sentence(number))


def _sentence(number: int) -> str:
    """The sentence for a signal; nothing if it was printed already."""
    if _printed:
        return ""
    _printed.append(number)
    return _SENTENCES.get(signal.Signals(number), f"Ended by {signal.Signals(number).name}.")


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _on_unraisable(unraisable: Any) -> None:
    """End the process for a signal that arrived in a `__del__` method, whose exceptions Python drops."""
    if _received and isinstance(unraisable.exc_value, KeyboardInterrupt | SystemExit):
        _leave(_received[0], None)
    sys.__unraisablehook__(unraisable)


class _ClosableStream:
    """A text stream that writes nothing more once its other end is closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or do nothing if the other end is closed."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._redirect_to_null(error)
            return len(text)

    def flush(self) -> None:
        """Flush, or do nothing if the other end is closed."""
        try:
            self._stream.flush()
        except OSError as error:
            self._redirect_to_null(error)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _redirect_to_null(self, error: OSError) -> None:
        """Redirect the file descriptor to the null device, also for other users of the stream and the flush at exit."""
        if error.errno not in _GONE:
            raise error
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)


def survive_closed_console() -> None:
    """Let this process continue silently when its terminal or the reader of its output is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _ClosableStream):
            setattr(sys, name, _ClosableStream(stream))

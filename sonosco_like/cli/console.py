"""A console that may go away: a closed terminal, or a pipe that nobody reads, must not end what a command does."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, TextIO

_GONE = (errno.EIO, errno.EPIPE, errno.EBADF, errno.ENXIO)


class _LastingStream:
    """A stream of text that is silent from the moment its other end is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or do nothing if nobody can read it any more."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._fall_silent(error)
            return len(text)

    def flush(self) -> None:
        """Flush, or do nothing if nobody can read it any more."""
        try:
            self._stream.flush()
        except OSError as error:
            self._fall_silent(error)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _fall_silent(self, error: OSError) -> None:
        """Have the stream lead nowhere, also for what holds on to it and at the end of the process."""
        if error.errno not in _GONE:
            raise error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def outlive_the_console() -> None:
    """Have this process go on, silently, when its terminal is closed or its output is read no more."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _LastingStream):
            setattr(sys, name, _LastingStream(stream))

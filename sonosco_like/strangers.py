"""Reading files of strangers: only files are opened, and a small one takes no more memory than it deserves.

A pipe would be waited for, a device would never end, one line may be as long as the file, and a megabyte of gzip may
stand for a gigabyte.
"""

from __future__ import annotations

import gzip
import io
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from sonosco_like.errors import DataError

LONGEST_LINE = 4 << 20  # bytes
MOST_EXPANSION = 100  # texts shrink ten- to thirtyfold; a bomb shrinks a thousandfold
ALWAYS_ALLOWED = 64 << 20  # bytes
_GZIP = b"\x1f\x8b"
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def refuse_special(path: Path) -> None:
    """Raise DataError for what is no regular file, also behind a link; OSError if there is nothing."""
    if "\0" in str(path):
        raise DataError(f"{str(path)!r} cannot be the name of a file: it holds a NUL character.")
    mode = path.stat().st_mode
    for is_kind, kind in _KINDS:
        if is_kind(mode):
            raise DataError(f"{path} is {kind}, and a file is needed.")


def open_file(path: Path) -> IO[bytes]:
    """A regular file as it is."""
    refuse_special(path)
    return path.open("rb")


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of a limited size."""
    with open_file(path) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise DataError(f"{path} has more than {most:,} bytes, too many for what it should hold.")
    return content


def open_text(path: Path) -> IO[bytes]:
    """The bytes of a text, unpacked if it is gzip. Raises, also while reading, OSError if torn, DataError if a bomb."""
    if not is_packed(path):
        return open_file(path)
    return io.BufferedReader(_Unpacked(path), io.DEFAULT_BUFFER_SIZE)


def is_packed(path: Path) -> bool:
    """Whether a file is gzip, whatever it is called."""
    with open_file(path) as stream:
        return stream.read(2) == _GZIP


def lines_of(stream: IO[bytes], name: Path) -> Iterator[bytes]:
    """The lines of a stream with their ends. Raises DataError for one that is longer than any line.

    Of a packed file there may be no more of them than it has bytes, beside those that are always allowed.
    """
    raw = getattr(stream, "raw", None)
    left = raw.most_lines if isinstance(raw, _Unpacked) else -1
    while line := stream.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise DataError(f"{name} has a line of more than {LONGEST_LINE:,} bytes, which no text needs.")
        if left == 0:
            raise DataError(_bomb(name))
        left -= 1
        yield line


def _bomb(path: Path) -> str:
    return (
        f"{path} unpacks to more than {MOST_EXPANSION} times its own size, or to more lines than can be in it, as an "
        "attack would. Unpack it by hand if you trust it."
    )


class _Unpacked(io.RawIOBase):
    """What is in a gzip file, as far as it is in proportion to its size."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = gzip.open(path)  # noqa: SIM115  (closed with this)
        self.most_lines = path.stat().st_size + ALWAYS_ALLOWED // MOST_EXPANSION
        self._left = MOST_EXPANSION * path.stat().st_size + ALWAYS_ALLOWED

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = self._stream.readinto(buffer)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise gzip.BadGzipFile(f"it is a torn or damaged gzip file ({error})") from None
        self._left -= count
        if self._left < 0:
            raise DataError(_bomb(self._path))
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()

"""Files of unknown origin: how they are read, how files beside them are written, and where a config may write.

Reading: only regular files are opened. A pipe would block, a device would never end, one line may be as long as the
file, and a megabyte of gzip may expand to a gigabyte.

Writing: a link in the place of a file or folder would redirect what is written or deleted. A run folder and a corpus
folder are searched for links before anything writes to them, this package or another one.

Places: the commands that read a config let it write to the run folder, the working directory, and the places that the
user names with the option `--allow-write` or in the environment. Python code is the user's and may write anywhere.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import shlex
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from sonosco_like.errors import DataError, StorageError, UsageError
from sonosco_like.redaction import drop_user, mask_secrets

MAX_LINE_BYTES = 4 << 20
MAX_EXPANSION = 100  # texts shrink ten- to thirtyfold; a bomb shrinks a thousandfold
ALWAYS_ALLOWED_BYTES = 64 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_SPECIAL_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular_file(path: Path) -> None:
    """Raise DataError unless the path, after links, is a regular file; OSError if nothing is there."""
    if "\0" in str(path):
        raise DataError(f"{str(path)!r} cannot be the name of a file: it holds a NUL character.")
    kind = {stat.S_IFDIR: "a folder", **_SPECIAL_KINDS}.get(stat.S_IFMT(path.stat().st_mode))
    if kind is not None:
        raise DataError(f"{path} is {kind}, and a file is needed.")


def open_regular_file(path: Path) -> IO[bytes]:
    """Open a regular file without unpacking it."""
    check_regular_file(path)
    return path.open("rb")


def read_limited(path: Path, most: int) -> bytes:
    """Read a regular file. Raises DataError if it has more than `most` bytes."""
    with open_regular_file(path) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise DataError(f"{path} has more than {most:,} bytes, too many for what it should hold.")
    return content


def open_text(path: Path) -> IO[bytes]:
    """Open a text file as bytes, unpacked if it is gzip.

    Opening and reading raise OSError for a torn gzip file and DataError for one that expands too much.
    """
    if not is_gzip(path):
        return open_regular_file(path)
    return io.BufferedReader(_BoundedGzip(path), io.DEFAULT_BUFFER_SIZE)


def is_gzip(path: Path) -> bool:
    """Whether a file is gzip, whatever its name is."""
    with open_regular_file(path) as stream:
        return stream.read(2) == _GZIP_MAGIC


def read_lines(stream: IO[bytes], name: Path) -> Iterator[bytes]:
    """The lines of a stream with their line ends. Raises DataError for a line that is too long.

    A gzip file may have no more lines than it has bytes, beside a number that is always allowed.
    """
    raw = getattr(stream, "raw", None)
    left = raw.most_lines if isinstance(raw, _BoundedGzip) else -1
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise DataError(f"{name} has a line of more than {MAX_LINE_BYTES:,} bytes, which no text needs.")
        if left == 0:
            raise DataError(_expands_too_much(name))
        left -= 1
        yield line


def refuse_links(folder: Path, names: Iterable[str], except_in: str = "") -> None:
    """Raise UsageError if one of these entries of a folder is a link or a special file, or holds a link to elsewhere.

    The folder itself may be a link. A link deeper inside may point to its neighbours, as those of Weights & Biases do.
    Folders whose names match the pattern `except_in` are not searched: nothing is written to them.
    """
    for path, found in _walk(folder, names, except_in):
        if stat.S_ISLNK(found.st_mode) and _leads_away(path, folder):
            raise UsageError(
                f"{path} is a link to {path.readlink()}. Links in a run folder or a corpus are not followed: a link "
                "that another person made could have your own files overwritten or deleted. Put the real file or "
                f"folder in its place; to keep everything on another disk, make the whole of {folder} a link."
            )
        kind = _SPECIAL_KINDS.get(stat.S_IFMT(found.st_mode))
        if kind is not None:
            raise UsageError(f"{path} is {kind}, and only files and folders belong in {folder}. Remove it.")


def break_hard_links(folder: Path, names: Iterable[str]) -> None:
    """Replace each of these files that exists elsewhere too, by a hard link, with a copy of its own."""
    for path, found in _walk(folder, names):
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            _copy_in_place(path)


def open_without_links(path: Path) -> int:
    """Open a file for reading and writing, or create it, and return its descriptor; a link is refused."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if path.is_symlink():
        raise UsageError(f"{path} is a link to {path.readlink()}, which would be overwritten. Remove it.")
    try:
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        raise StorageError(f"{path} could not be opened: {error.strerror or error}.") from error
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    what = "is no file" if not stat.S_ISREG(found.st_mode) else "is a hard link, and another file would change with it"
    raise UsageError(f"{path} {what}. Remove it.")


def _walk(folder: Path, names: Iterable[str], except_in: str = "") -> Iterator[tuple[Path, os.stat_result]]:
    """The named entries of a folder and everything below them; entries that disappear meanwhile are left out."""
    waiting = [folder / name for name in names]
    while waiting:
        path = waiting.pop()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and not fnmatchcase(path.name, except_in):
                waiting += path.iterdir()
            yield path, found


def _leads_away(link: Path, folder: Path) -> bool:
    """Whether a link points out of the top-level entry, such as `wandb`, in which it lies."""
    parts = link.relative_to(folder).parts
    entry = (folder / parts[0]).resolve()
    return len(parts) == 1 or not Path(os.path.realpath(link)).is_relative_to(entry)


def _copy_in_place(path: Path) -> None:
    aside = path.with_name(f".{path.name}.own")
    try:
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
        with path.open("rb") as source, aside.open("xb") as target:
            shutil.copyfileobj(source, target)
        shutil.copystat(path, aside)
        aside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        message = f"{path} is a hard link, and could not be made a file of its own: {error.strerror or error}."
        raise StorageError(message) from error


def _expands_too_much(path: Path) -> str:
    return (
        f"{path} unpacks to more than {MAX_EXPANSION} times its own size, or to more lines than can be in it, as an "
        "attack would. Unpack it by hand if you trust it."
    )


class _BoundedGzip(io.RawIOBase):
    """The content of a gzip file, as long as it is in proportion to the size of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = gzip.open(path)  # noqa: SIM115  (closed with this)
        self.most_lines = path.stat().st_size + ALWAYS_ALLOWED_BYTES // MAX_EXPANSION
        self._left = MAX_EXPANSION * path.stat().st_size + ALWAYS_ALLOWED_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = self._stream.readinto(buffer)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise gzip.BadGzipFile(f"it is a torn or damaged gzip file ({error})") from None
        self._left -= count
        if self._left < 0:
            raise DataError(_expands_too_much(self._path))
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


ALLOW_WRITE_VARIABLE = "SONOSCO_ALLOW_WRITE"
"""The environment variable with the places, separated by commas, that every command may write to."""
EVERYWHERE = "*"
_IN_MEMORY = "memory://"
_LOCAL = re.compile(r"(file|local):(//)?", re.IGNORECASE)
_SQLITE = re.compile(r"sqlite(\+\w+)?:///?([^?]*)", re.IGNORECASE)
_limits: list[tuple[str, ...]] = []  # the last entry counts; with no entry, everything is allowed


@contextlib.contextmanager
def allow_writing_only_to(places: Iterable[str | Path]) -> Iterator[None]:
    """Have `check_writing` refuse all other places, except those that the environment allows."""
    allowed_by_user = os.environ.get(ALLOW_WRITE_VARIABLE, "").split(",")
    _limits.append(tuple(text for place in (*places, *allowed_by_user) if (text := str(place).strip())))
    try:
        yield
    finally:
        _limits.pop()


def allowed_places() -> tuple[str, ...]:
    """The places that may be written to now; a command that is started from here gets the same."""
    return _limits[-1] if _limits else (EVERYWHERE,)


def check_writing(place: str | Path, name: str) -> None:
    """Raise UsageError, with the option that allows it, if the field `name` may not write to this place."""
    text = str(place)
    if not any(_is_within(text, each) for each in allowed_places()):
        shown = mask_secrets(drop_user(text))
        raise UsageError(
            f"`{name}` would write to {shown}{_behind_link(text)}, outside the run folder and the working "
            f"directory. If you trust this config, allow it: --allow-write {shlex.quote(shown)}"
        )


def _behind_link(place: str) -> str:
    """Where a path leads to, if a link hides that."""
    path, real = os.path.abspath(place), os.path.realpath(place)  # noqa: PTH100
    return "" if "://" in place or path == real else f", which leads to {real} by a link"


def _is_within(place: str, allowed: str) -> bool:
    if allowed == EVERYWHERE:
        return True
    paths, outer = _paths(place), _paths(allowed)
    if paths is not None:
        return outer is not None and all(any(path.is_relative_to(each) for each in outer) for path in paths)
    return outer is None and _is_url_within(drop_user(place), drop_user(allowed))


def _paths(place: str) -> list[Path] | None:
    """The paths on this machine that a place may mean to different libraries; None for a URL of another machine."""
    if "::" not in place and place.startswith(_IN_MEMORY):
        return []
    if sqlite := _SQLITE.match(place):
        place = sqlite[2]
    hosted = place
    while local := _LOCAL.match(place):
        place = hosted = place[local.end() :]
        if local[2] and not place.startswith("/"):  # some libraries take the first part for a host, others for a folder
            hosted = f"/{place.partition('/')[2]}"
    if "://" in place or "::" in place:
        return None
    texts = {text for each in (place, hosted) for text in (each, unquote(each))}
    readings = {reading for text in texts for reading in (text, os.path.expanduser(text))}  # noqa: PTH111
    return [Path(os.path.realpath(reading)) for reading in readings]


def _is_url_within(url: str, allowed: str) -> bool:
    base = allowed if allowed.endswith("://") else allowed.rstrip("/")
    inner = url.startswith((f"{base}/", f"{base}?")) or (base.endswith("://") and url.startswith(base))
    return url == base or (inner and "::" not in url and ".." not in unquote(url).split("/"))

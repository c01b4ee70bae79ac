"""Unpacking untrusted archives: nothing is written outside of the folder, and no more than there is room for.

Python's `tarfile` writes the members, with its `data` filter. Links are made last, after all files, so that no file can
be written through one. An archive is unpacked into a temporary folder, which is renamed when it is complete.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from sonosco_like.errors import DataError, UsageError, as_sentence
from sonosco_like.progress import Progress, no_progress
from sonosco_like.untrusted_files import open_regular_file

ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
_MOST_MEMBERS = 20_000_000
_MOST_EXPANSION = 50  # audio shrinks by half at most; a bomb shrinks a thousand times
_ALWAYS_ALLOWED = 64 << 20  # bytes
_BLOCK = 1 << 20
_LONGEST_NAME = 4096  # bytes
_MOST_AT_ONCE = 4 * _BLOCK
_PACKED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}


def is_archive(path: Path) -> bool:
    """Whether a file has the suffix of an archive that can be unpacked."""
    return path.name.lower().endswith(ARCHIVE_SUFFIXES) and path.is_file()


def archive_stem(name: str) -> str:
    """The name of an archive without its suffix, as the name of a folder."""
    suffix = next((suffix for suffix in ARCHIVE_SUFFIXES if name.lower().endswith(suffix)), "")
    stem = name[: len(name) - len(suffix)]
    if stem in ("", ".", ".."):
        raise DataError(f"An archive called {name!r} is not unpacked: nothing is left of its name without the suffix.")
    return stem


def extract_archive(archive: Path, folder: Path, progress: Progress = no_progress) -> Path:
    """Unpack a tar archive, compressed or not, into a new folder; the folder appears complete, or not at all."""
    if not hasattr(tarfile, "data_filter"):
        raise UsageError(
            "This Python cannot unpack archives safely: its `tarfile` has no `data` filter. Use Python 3.10.12, "
            "3.11.4 or newer, or unpack the archive by hand and give its folder with --source."
        )
    aside = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        budget = _Budget(archive, aside)
        with (
            _archive_errors_as_data_errors(archive),
            _Reader(archive, budget) as stream,
            _open_tar(stream, archive) as tar,
        ):
            _extract_members(tar, aside, budget, progress)
            while stream.read(_BLOCK):  # up to the checksum of the compressed stream, behind the last member
                pass
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    aside.replace(folder)
    return folder


class _Budget:
    """How much an archive may still unpack to."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self._archive = archive
        self._bytes = min(_MOST_EXPANSION * archive.stat().st_size + _ALWAYS_ALLOWED, shutil.disk_usage(folder).free)
        self._members = _MOST_MEMBERS

    def spend(self, member: tarfile.TarInfo) -> None:
        """Account for a member before it is written."""
        self._members -= 1
        if self._members < 0 or (member.isreg() and member.size > self._bytes):
            self._refuse()

    def spend_bytes(self, count: int) -> None:
        """Account for unpacked bytes: members, and all that is between them."""
        self._bytes -= count
        if self._bytes < 0:
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise DataError(
            f"{self._archive} unpacks to more than the free space of the disk, or to more than "
            f"{_MOST_EXPANSION} times its own size, like an attack. Unpack it by hand if you trust it."
        )


class _Reader:
    """The unpacked bytes of an archive, within a budget; Python's tarfile would read a header of any size at once."""

    def __init__(self, archive: Path, budget: _Budget) -> None:
        with open_regular_file(archive) as file:
            magic = file.read(6)
        unpack = next((unpack for mark, unpack in _PACKED.items() if magic.startswith(mark)), open)
        self._archive, self._budget = archive, budget
        self._stream: Any = unpack(archive, "rb")

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def read(self, size: int = -1) -> bytes:
        """The next bytes; a single request for many of them is refused."""
        if not 0 <= size <= _MOST_AT_ONCE:
            raise DataError(f"{self._archive} has a header of {size:,} bytes, like an attack. It is not unpacked.")
        content: bytes = self._stream.read(size)
        self._budget.spend_bytes(len(content))
        return content

    def seek(self, position: int) -> int:
        """Go to a position; bytes that are passed over count as read."""
        self._budget.spend_bytes(max(0, position - self.tell()))
        return int(self._stream.seek(position))

    def tell(self) -> int:
        """The position in the unpacked bytes."""
        return int(self._stream.tell())


def _open_tar(stream: _Reader, archive: Path) -> tarfile.TarFile:
    return tarfile.TarFile(str(archive), fileobj=stream)  # type: ignore[arg-type]


def _extract_members(tar: tarfile.TarFile, folder: Path, budget: _Budget, progress: Progress) -> None:
    links: list[tarfile.TarInfo] = []
    with progress(f"unpacking {Path(str(tar.name)).name}", None, "B") as advance:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # or millions of them would be kept
            budget.spend(member)
            _check_name(member)
            if member.issym() or member.islnk():
                links.append(member)
            else:
                _extract(tar, member, folder)
                advance(member.size)
    for member in links:
        _extract_link(tar, member, folder.resolve())


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write one member, if Python's `data` filter passes it: no devices, nothing outside of the folder."""
    if not member.isdir() and os.path.lexists(folder / member.name):
        raise DataError(f"The archive holds two files of one name ({member.name}). It is not unpacked.")
    try:
        tar.extract(member, folder, set_attrs=False, filter="data")
    except tarfile.FilterError as error:
        raise DataError(f"The archive is not unpacked: {as_sentence(error)}") from None


def _extract_link(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Make a symbolic link, also for a hard link, if the link and its target lie inside of the folder."""
    link = folder / member.name
    if link.parent.resolve() != link.parent:
        raise DataError(f"The archive holds the link {member.name!r} behind another link. It is not unpacked.")
    if member.islnk():
        member.type, member.linkname = tarfile.SYMTYPE, os.path.relpath(folder / member.linkname, link.parent)
    _extract(tar, member, folder)
    if not link.exists() or not link.resolve().is_relative_to(folder):
        raise DataError(f"The archive holds the link {member.name!r} to {member.linkname!r}, which is not in it.")


def _check_name(member: tarfile.TarInfo) -> None:
    """Refuse names that the filter would change, and names that are paths only on other systems."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or "\\" in member.name or (path.parts and ":" in path.parts[0]):
        raise DataError(f"The archive holds {member.name!r}, which is no relative path. It is not unpacked.")
    if ".." in path.parts:
        raise DataError(f"The archive holds {member.name!r}, which points outside of it. It is not unpacked.")
    if len(member.name.encode(errors="replace")) > _LONGEST_NAME:
        raise DataError(f"The archive holds {member.name[:100]!r}, a name that is too long. It is not unpacked.")


@contextmanager
def _archive_errors_as_data_errors(archive: Path) -> Iterator[None]:
    """Raise one `DataError` for the many exceptions of a broken archive."""
    try:
        yield
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"The archive {archive} is broken or cut off ({error}). Get it again.") from None
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(f"The archive {archive} holds a file and a folder of one name ({error.filename}).") from None

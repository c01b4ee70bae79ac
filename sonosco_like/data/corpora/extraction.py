"""Unpacking archives of strangers: nothing is written outside of the folder, and no more than there is room for.

Links are made last, after all files, so that no file can be written through one; each is then followed to its end.
Unpacking happens in a folder aside, which gets its name when it is whole.
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

from sonosco_like.data.tools.progress import Progress, no_progress
from sonosco_like.errors import DataError
from sonosco_like.strangers import open_file

ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
_MOST_MEMBERS = 20_000_000
_MOST_EXPANSION = 50  # audio shrinks by half at most; a bomb shrinks a thousand times
_ALWAYS_ALLOWED = 64 << 20  # bytes
_BLOCK = 1 << 20
_LONGEST_NAME = 4096  # bytes
_MOST_AT_ONCE = 4 * _BLOCK
_PACKED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}


def is_archive(path: Path) -> bool:
    """Whether a file is called like an archive that can be unpacked."""
    return path.name.lower().endswith(ARCHIVE_SUFFIXES) and path.is_file()


def archive_stem(name: str) -> str:
    """The name of an archive without its suffix, fit for a folder."""
    suffix = next((suffix for suffix in ARCHIVE_SUFFIXES if name.lower().endswith(suffix)), "")
    stem = name[: len(name) - len(suffix)]
    if stem in ("", ".", ".."):
        raise DataError(f"An archive called {name!r} is not unpacked: its name leaves none for a folder.")
    return stem


def extract_archive(archive: Path, folder: Path, progress: Progress = no_progress) -> Path:
    """Unpack a tar archive, compressed or not, into a new folder; in the end it is there whole, or not at all."""
    aside = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        budget = _Budget(archive, aside)
        with _readable(archive), _Reader(archive, budget) as stream, _open_tar(stream, archive) as tar:
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
        """Account for what was unpacked: members, and all that stands between them."""
        self._bytes -= count
        if self._bytes < 0:
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise DataError(
            f"{self._archive} unpacks to more than the free space of the disk, or to more than "
            f"{_MOST_EXPANSION} times its own size, as an attack would. Unpack it by hand if you trust it."
        )


class _Reader:
    """The unpacked bytes of an archive, within a budget; Python's tarfile would read a header of any size at once."""

    def __init__(self, archive: Path, budget: _Budget) -> None:
        with open_file(archive) as file:
            magic = file.read(6)
        unpack = next((unpack for mark, unpack in _PACKED.items() if magic.startswith(mark)), open)
        self._archive, self._budget = archive, budget
        self._stream: Any = unpack(archive, "rb")

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def read(self, size: int = -1) -> bytes:
        """The next bytes, of which nobody needs many at once."""
        if not 0 <= size <= _MOST_AT_ONCE:
            raise DataError(f"{self._archive} has a header of {size:,} bytes, as an attack would. It is not unpacked.")
        content: bytes = self._stream.read(size)
        self._budget.spend_bytes(len(content))
        return content

    def seek(self, position: int) -> int:
        """Go on elsewhere; forwards this counts as read."""
        self._budget.spend_bytes(max(0, position - self.tell()))
        return int(self._stream.seek(position))

    def tell(self) -> int:
        """Where in the unpacked bytes it is."""
        return int(self._stream.tell())


def _open_tar(stream: _Reader, archive: Path) -> tarfile.TarFile:
    return tarfile.TarFile(str(archive), fileobj=stream)  # type: ignore[arg-type]


def _extract_members(tar: tarfile.TarFile, folder: Path, budget: _Budget, progress: Progress) -> None:
    links: list[tarfile.TarInfo] = []
    with progress(f"unpacking {Path(str(tar.name)).name}", None, "B") as advance:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # or millions of them would be kept
            budget.spend(member)
            target = folder / _safe_name(member.name)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
            elif member.isreg():
                _write(tar, member, target)
                advance(member.size)
            elif member.issym() or member.islnk():
                links.append(member)
            else:
                raise DataError(f"The archive holds {member.name!r}, which is a device or a pipe. It is not unpacked.")
    for member in links:
        _link(member, folder)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None  # only members that are no files have none
    with source, target.open("xb") as stream:
        shutil.copyfileobj(source, stream, _BLOCK)


def _link(member: tarfile.TarInfo, folder: Path) -> None:
    """Make a symbolic link, also for a hard one, if it and what it leads to lie inside of the folder."""
    folder = folder.resolve()
    link = folder / _safe_name(member.name)
    if link.parent.resolve() != link.parent:
        raise DataError(f"The archive holds the link {member.name!r} behind another link. It is not unpacked.")
    start = link.parent if member.issym() else folder
    goal = Path(os.path.normpath(start / _relative(member.linkname)))
    if not goal.resolve().is_relative_to(folder):
        raise DataError(f"The archive holds the link {member.name!r} to {member.linkname!r}, outside of the archive.")
    if not goal.exists():
        raise DataError(f"The archive holds the link {member.name!r} to {member.linkname!r}, which is not in it.")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(goal, link.parent), target_is_directory=goal.is_dir())


def _safe_name(name: str) -> PurePosixPath:
    path = _relative(name)
    if ".." in path.parts:
        raise DataError(f"The archive holds {name!r}, which points outside of it. It is not unpacked.")
    if len(name.encode(errors="replace")) > _LONGEST_NAME or not path.parts:
        raise DataError(f"The archive holds {name[:100]!r}, which no file can be called. It is not unpacked.")
    return path


def _relative(name: str) -> PurePosixPath:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or (path.parts and ":" in path.parts[0]):
        raise DataError(f"The archive holds {name!r}, which is an absolute path. It is not unpacked.")
    return path


@contextmanager
def _readable(archive: Path) -> Iterator[None]:
    """Turn the many ways in which a broken archive fails into one."""
    try:
        yield
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"The archive {archive} is broken or cut off ({error}). Get it again.") from None
    except FileExistsError as error:
        raise DataError(f"The archive {archive} holds two files of one name ({error.filename}).") from None

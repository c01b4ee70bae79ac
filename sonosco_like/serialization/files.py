"""Files and folders are written so that after a crash at any moment the old or the new one is there, never a half.

A new one is written beside its place, flushed to disk, and renamed into it. Renaming is atomic for a file. A folder
that replaces another is moved in two steps, and the former one is called `.NAME.previous` in between. A reader puts
it back if a crash fell between the two steps. A reader cannot tell a crash from a writer that is between the two steps,
so a writer that finds the former one back in its place moves it once more.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sonosco_like.errors import StorageError, as_sentence

MAX_BYTES = 64 * 2**20
_CHUNK = 2**20
_ATTEMPTS = 100  # at putting a folder in its place while readers keep putting the former one back


def replace_file(path: Path, content: bytes, private: bool = False) -> None:
    """Write a file atomically; a `private` one may be read by its owner alone."""
    aside = _aside(path)
    try:
        write_file(aside, content, private)
        aside.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            aside.unlink()
        raise StorageError(
            f"{path} could not be written: {error.strerror or error}. What was there before is intact."
        ) from error


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill. It takes the place of `path` if the block ends without an error; otherwise it is deleted."""
    aside, previous = _aside(path), _previous(path)
    try:
        restore_previous(path)
        _remove(aside)
        _make_folders(path.parent)
        aside.mkdir()
        yield aside
        flush_folder(aside)
        _take_place(aside, path, previous)
        flush_folder(path.parent)
        _remove(previous)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        if isinstance(error, StorageError):
            raise
        reason = error.strerror or str(error)
        raise StorageError(
            f"{path} could not be written: {as_sentence(reason)} What was there before is intact."
        ) from error
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def restore_previous(path: Path) -> None:
    """Put the former folder back if there was a crash between the two steps of replacing it."""
    previous = _previous(path)
    try:
        if not path.exists() and previous.is_dir() and not previous.is_symlink():
            previous.rename(path)
    except OSError as error:
        if path.exists() or not previous.exists():  # the writer was alive after all, or another reader was faster
            return
        raise StorageError(f"{path} could not be read: {error.strerror or error}.") from error


@contextmanager
def detect_replacement(path: Path) -> Iterator[Callable[[], bool]]:
    """A function that returns whether `path` is still the file or folder it was when the block began.

    The file is held open, so that the system gives its number to no other file in the meantime.
    """
    descriptor: int | None = None
    if os.name == "posix":
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    before = _identity(path if descriptor is None else descriptor)

    def is_unchanged() -> bool:
        is_being_replaced = before is None and _previous(path).exists()
        return not is_being_replaced and _identity(path) == before

    try:
        yield is_unchanged
    finally:
        if descriptor is not None:
            os.close(descriptor)


def absolute_path(path: str | Path) -> Path:
    """The path from the root, so that `.` has a name too; links in it are not resolved."""
    if "\0" in str(path):
        raise StorageError(f"{str(path)!r} cannot be the name of a file: it holds a NUL character.")
    return Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow links)


def write_file(path: Path, content: bytes, private: bool = False) -> None:
    """Write and flush one file beside its final place; an older file is removed first."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    with open(path, "xb", opener=_private if private else None) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def read_file(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a regular file; links, devices and oversized files are refused."""
    with _open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise StorageError(f"{path} has {size:,} bytes, more than the {limit:,} allowed.")
        return file.read()


def file_differs(path: Path, content: bytes) -> bool:
    """Whether a path is anything but a regular file with this content."""
    is_file = path.is_file() and not path.is_symlink()
    return not is_file or path.stat().st_size != len(content) or path.read_bytes() != content


def hash_file(path: Path) -> str:
    """The SHA-256 of a regular file, in hexadecimal."""
    digest = hashlib.sha256()
    with _open_regular(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def flush_folder(path: Path) -> None:
    """Flush the entries of a folder, so that a rename survives a power cut. Windows has no such call."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _make_folders(path: Path) -> None:
    """Make a folder and its parents, and flush the entry of each, so that none is lost in a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        flush_folder(folder.parent)


def _take_place(aside: Path, path: Path, previous: Path) -> None:
    for attempt in range(_ATTEMPTS):
        if path.exists():
            _remove(previous)
            path.rename(previous)
        try:
            aside.rename(path)
            return
        except OSError:
            if not path.exists() or attempt == _ATTEMPTS - 1:
                raise


def _identity(place: Path | int) -> tuple[int, int] | None:
    try:
        found = os.fstat(place) if isinstance(place, int) else place.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open_regular(path: Path) -> BinaryIO:
    _refuse_link(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise StorageError(f"{path} does not exist.") from None
    except OSError as error:
        raise StorageError(f"{path} could not be read: {error.strerror or error}.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(f"{path} is not a regular file.")
    return os.fdopen(descriptor, "rb")


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise StorageError(f"{path} is a symbolic link; files of a saved object must be files in its own folder.")


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.saving")


def _previous(path: Path) -> Path:
    return path.with_name(f".{path.name}.previous")

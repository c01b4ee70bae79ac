"""Files of the manifest tools: outputs, text files, and the lengths of many recordings."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from sonosco_like.data.audio import audio_info
from sonosco_like.errors import DataError, UsageError
from sonosco_like.progress import Progress, no_progress
from sonosco_like.untrusted_files import read_limited

_LARGEST = 1 << 28
_THREADS = 8  # reading headers is mostly waiting for the disk
_AT_ONCE = 4096
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def claim_file(path: Path, force: bool) -> None:
    """Refuse a file that exists, unless forced, and a file that cannot be written."""
    if path.exists() and not path.is_dir() and not force:
        raise UsageError(f"The file {path} exists. Choose another name, or write over it with --force.")
    check_writable(path)


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before long work is done for it; nothing is left behind."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; a name for a file is needed.")
    folder = next(parent for parent in (path.parent, *path.absolute().parents) if parent.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{path.name}."):
            pass
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageError(
            f"The file {path} cannot be written: {error.strerror or error}. Choose a name in another folder."
        ) from None


def read_text(path: Path, errors: str = "strict") -> str:
    """The content of a UTF-8 file; a file that cannot be read as UTF-8 is a `DataError` with its name."""
    try:
        return read_limited(path, _LARGEST).decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}). Convert it first.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None


def measure_recordings(
    paths: Sequence[Path], progress: Progress = no_progress
) -> Iterator[tuple[Path, float | DataError]]:
    """The seconds of each recording, in order, or its problem."""
    return in_threads(_measure, paths, progress, "reading headers")


def in_threads(
    work: Callable[[_Item], _Result], items: Sequence[_Item], progress: Progress, name: str
) -> Iterator[tuple[_Item, _Result]]:
    """Each item with its result, in order, computed by a few threads."""
    if not items:
        return
    with ThreadPoolExecutor(_THREADS) as pool, progress(name, len(items), "files") as advance:
        for start in range(0, len(items), _AT_ONCE):
            batch = items[start : start + _AT_ONCE]
            for item, result in zip(batch, pool.map(work, batch), strict=True):
                advance(1)
                yield item, result


def _measure(path: Path) -> float | DataError:
    try:
        seconds = audio_info(path).duration
    except DataError as error:
        return error
    return seconds if seconds > 0 else DataError(f"{path} holds no audio.")

"""One process per run folder: a lock that dies with its owner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sonosco_like.errors import UsageError

try:
    import fcntl
except ImportError:  # not on Windows, where runs are not guarded against each other
    fcntl = None  # type: ignore[assignment]


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder. Raises UsageError if another process has it."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
                said = f"{folder} is in use by process {owner or 'unknown'}; wait for it, or stop it."
                raise UsageError(said) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)

"""One process per run folder: a lock that dies with its owner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sonosco_like.errors import UsageError
from sonosco_like.links import open_own, own_files, refuse_links
from sonosco_like.run_folder import LOCK, WRITTEN, WRITTEN_IN_PLACE

try:
    import fcntl
except ImportError:  # not on Windows, where runs are not guarded against each other
    fcntl = None  # type: ignore[assignment]

_held: set[Path] = set()  # by this process, to which the system would give a lock twice


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder. Raises UsageError if another process has it.

    Whoever holds it may write there: what a run writes is the folder's own, and no link to anything elsewhere.

    It is a lock of this process and not of the open file, which forked loader workers would share and hold for as long
    as they outlive a killed trainer.
    """
    place = folder.resolve()
    if place in _held:
        raise UsageError(f"{folder} is in use by this process already.")
    refuse_links(folder, WRITTEN)
    descriptor = open_own(folder / LOCK)
    try:
        _lock(descriptor, folder)
        _held.add(place)
        own_files(folder, WRITTEN_IN_PLACE)
        yield
    finally:
        _held.discard(place)
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        if fcntl is not None:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        said = f"{folder} is in use by process {owner or 'unknown'}; wait for it, or stop it."
        raise UsageError(said) from None
    os.truncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())

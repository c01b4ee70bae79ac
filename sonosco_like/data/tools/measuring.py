"""Lengths of many recordings at once, from their headers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sonosco_like.data.audio import audio_info
from sonosco_like.data.tools.progress import Progress, no_progress
from sonosco_like.errors import DataError

_THREADS = 8  # reading headers is waiting for the disk
_AT_ONCE = 4096


def measure_recordings(
    paths: Sequence[Path], progress: Progress = no_progress
) -> Iterator[tuple[Path, float | DataError]]:
    """The seconds of each recording, in order, or what is wrong with it."""
    if not paths:
        return
    with ThreadPoolExecutor(_THREADS) as pool, progress("reading headers", len(paths), "files") as advance:
        for start in range(0, len(paths), _AT_ONCE):
            batch = paths[start : start + _AT_ONCE]
            for path, seconds in zip(batch, pool.map(_measure, batch), strict=True):
                advance(1)
                yield path, seconds


def _measure(path: Path) -> float | DataError:
    try:
        seconds = audio_info(path).duration
    except DataError as error:
        return error
    return seconds if seconds > 0 else DataError(f"{path} holds no audio.")

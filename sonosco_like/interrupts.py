"""Ctrl-C, SIGTERM and SIGHUP, which reach all processes of a terminal or a job: who hears them, how one leaves at once.

Layer 0, and without torch: processes that make speech, loader workers and the command line share it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # not on Windows
STOPPING = (signal.SIGINT, signal.SIGTERM) if HANGUP is None else (signal.SIGINT, signal.SIGTERM, HANGUP)
HAS_MASKS = hasattr(signal, "pthread_sigmask")
_SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Keep signals back while processes are started, until those have said what they do about them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING) if HAS_MASKS else set()
    try:
        yield
    finally:
        if HAS_MASKS:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_at_once(number: int, sentence: str) -> NoReturn:
    """End this process and those it started with one sentence; for a moment in which an exception would be lost."""
    children = getattr(sys.modules.get("multiprocessing"), "active_children", list)
    for child in children():
        child.kill()
    with contextlib.suppress(OSError):
        os.write(2, (_SHOW_CURSOR if os.isatty(2) else b"") + (f"{sentence}\n".encode() if sentence else b""))
    os._exit(128 + number)

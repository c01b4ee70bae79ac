"""This process: what it may use, and the signals that stop it (Ctrl-C, SIGTERM, SIGHUP), which reach all of a job.

Layer 0, and without torch: the processes that synthesise speech, the loader workers and the command line share it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM) if HANGUP is None else (signal.SIGINT, signal.SIGTERM, HANGUP)
CAN_BLOCK_SIGNALS = hasattr(signal, "pthread_sigmask")
_SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it


@contextlib.contextmanager
def block_signals() -> Iterator[None]:
    """Hold the stop signals back while child processes start, until each child has installed its own handlers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS) if CAN_BLOCK_SIGNALS else set()
    try:
        yield
    finally:
        if CAN_BLOCK_SIGNALS:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def call_on_stop_signal(react: Callable[[str], None]) -> Iterator[list[int]]:
    """Call `react` with the name of the first stop signal; yields a list that will hold its number.

    A second signal ends the process and its children at once. Signals reach the main thread only; in another thread
    this does nothing.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if received and number == HANGUP:  # the system and the shell each send one when a terminal is closed
            return
        name = signal.Signals(number).name
        if received:
            exit_at_once(number, f"{name} again: stopped at once. `sonosco resume` continues from the last checkpoint.")
        received.append(number)
        react(name)

    before = {number: signal.signal(number, handle) for number in _signals_to_handle()}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _signals_to_handle() -> list[signal.Signals]:
    """The stop signals; a hangup only if `nohup` did not ask to ignore it."""
    return [number for number in STOP_SIGNALS if number != HANGUP or signal.getsignal(number) is not signal.SIG_IGN]


def exit_at_once(number: int, sentence: str) -> NoReturn:
    """Print one sentence and end this process and its children; for moments in which an exception would be lost."""
    children = getattr(sys.modules.get("multiprocessing"), "active_children", list)
    for child in children():
        child.kill()
    with contextlib.suppress(OSError):
        os.write(2, (_SHOW_CURSOR if os.isatty(2) else b"") + (f"{sentence}\n".encode() if sentence else b""))
    os._exit(128 + number)


def usable_processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def available_memory() -> int | None:
    """Bytes of memory that this process may still take: of the machine, or of its container; None if not known."""
    known = []
    memory = Path("/proc/meminfo")  # Linux
    if memory.exists():
        lines = dict(line.split(":", 1) for line in memory.read_text().splitlines())
        known += [int(lines["MemAvailable"].split()[0]) * 1024] if "MemAvailable" in lines else []
    for limit in map(Path, _CGROUP_LIMITS):
        if limit.exists() and (text := limit.read_text().strip()).isdecimal():
            known.append(int(text) - (resident_memory()[0] or 0))
    return min(known, default=None)


def resident_memory() -> tuple[int | None, int | None]:
    """Bytes of resident memory: now, and at its peak; None for a number that the operating system does not give."""
    status = Path("/proc/self/status")  # Linux
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        now, peak = (int(lines[key].split()[0]) * 1024 if key in lines else None for key in ("VmRSS", "VmHWM"))
        return now, peak
    if sys.platform == "win32":
        return None, None
    import resource  # Windows has none

    unit = 1 if sys.platform == "darwin" else 1024
    return None, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

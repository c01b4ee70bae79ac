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


def available_memory() -> int | None:
    """Bytes that this process may still take: by the machine, its control groups and its limits; None if unknown."""
    known = [_free_on_machine(), _free_in_cgroup(), _free_address_space()]
    return min((max(0, each) for each in known if each is not None), default=None)


def _free_on_machine() -> int | None:
    path = Path("/proc/meminfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _free_in_cgroup() -> int | None:
    """What the memory limits of this process's control groups leave; files that are only cached can be given back."""
    own, root = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
    if not own.exists():
        return None
    found: list[int] = []
    for line in own.read_text().splitlines():
        _, kinds, name = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        base, limit, usage = (
            (root, "memory.max", "memory.current") if not kinds
            else (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
        )  # fmt: skip
        folder = base / name.lstrip("/")
        for group in (folder, *folder.parents):
            if not group.is_relative_to(base):
                break
            found += _free_in_group(group, limit, usage)
    return min(found, default=None)


def _free_in_group(group: Path, limit: str, usage: str) -> list[int]:
    try:
        text, used = (group / limit).read_text().strip(), int((group / usage).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return []
    return [int(text) - used + int(stat.get("inactive_file", 0))] if text.isdigit() else []


def _free_address_space() -> int | None:
    status = Path("/proc/self/statm")
    if not status.exists():
        return None
    import resource  # Windows has none

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return (
        None if limit == resource.RLIM_INFINITY else limit - int(status.read_text().split()[0]) * resource.getpagesize()
    )

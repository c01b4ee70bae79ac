"""Loader workers: how they behave, and what is said when one dies.

Workers are forked. They share the manifest's columns, the plan and everything imported with the main process, start in
milliseconds, and need nothing to be picklable. They touch no GPU, and compute on one thread, so that the threads of the
main process, which a fork does not copy, are not missed. Where there is no fork (Windows), they are spawned, and each
holds its own manifest.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import multiprocessing
import signal
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from types import FrameType
from typing import Any

import torch

from sonosco_like.errors import DataError
from sonosco_like.interrupts import HAS_MASKS, STOPPING

_ORIGINAL = "Original Traceback"  # in what torch raises for an exception of a worker
_SECONDS_OF_GRACE = 30  # what Slurm gives between SIGTERM and SIGKILL


def start_method() -> str:
    """How workers are started on this machine."""
    return "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"


def begin_worker(worker: int) -> None:
    """Leave stopping to the main process, and inherited objects where they are.

    Ctrl-C, a closed terminal and the end of a cluster job reach all processes, but the main one wants to finish its
    batch and save it.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    if HAS_MASKS:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, lambda *_: signal.alarm(_SECONDS_OF_GRACE))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    gc.freeze()  # the collector would write to inherited pages, which would then be copied


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute as a worker does, so that the bits are the same without workers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def hear_of_dead_workers() -> None:
    """Turn torch's message about a dead worker, which can come at any time, into ours.

    torch raises it from a signal handler, so in the middle of whatever the main thread does.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCHLD"):
        return
    handler = signal.getsignal(signal.SIGCHLD)
    if callable(handler) and not getattr(handler, "says_what_to_do", False):
        signal.signal(signal.SIGCHLD, _saying_what_to_do(handler))


def dismiss(fetches: Iterator[Any]) -> None:
    """End the workers behind torch's iterator now; a traceback may keep the iterator itself alive for long."""
    shut_down = getattr(fetches, "_shutdown_workers", None)
    if shut_down is not None:
        shut_down()


def close_at_exit(batches: Generator[Any, None, None]) -> None:
    """Send the workers home before the interpreter waits for them, if the pass is still under way then."""

    def close() -> None:
        generator = reference()
        if generator is not None:
            generator.close()

    reference = weakref.ref(batches, lambda _: atexit.unregister(close))
    atexit.register(close)


def _saying_what_to_do(handler: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], Any]:
    def handle(number: int, frame: FrameType | None) -> None:
        with explained():
            handler(number, frame)

    handle.says_what_to_do = True  # type: ignore[attr-defined]
    return handle


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Say what to do about a dead worker."""
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        if isinstance(error.__cause__, DataError):  # the signal came while torch waited for the worker
            raise error.__cause__ from None
        if _ORIGINAL in str(error):  # it did not die, but raised this
            raise DataError(f"A loader worker failed: {str(error).strip().splitlines()[-1]}.") from error
        what = str(error).strip().rstrip(".")
        raise DataError(
            f"A loader worker died: {what}. Most often the machine ran out of memory (then lower `batch_seconds`, "
            f"`num_workers` or `prefetch`) or of shared memory (then raise the limit of /dev/shm). With "
            f"`num_workers: 0` the work is done in this process, and what is wrong shows itself."
        ) from error

"""Loader workers: how they start and stop, and the error when one dies.

Workers are forked. They share the manifest's columns, the plan and everything imported with the main process, start in
milliseconds, and need nothing to be picklable. They touch no GPU and compute on one thread, because a fork does not
copy the threads of the main process. Where there is no fork (Windows), workers are spawned, and each holds its own
manifest.
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

from sonosco_like.errors import DataError, as_sentence
from sonosco_like.process import CAN_BLOCK_SIGNALS, STOP_SIGNALS

_ORIGINAL = "Original Traceback"  # in what torch raises for an exception of a worker
_SECONDS_OF_GRACE = 30  # what Slurm gives between SIGTERM and SIGKILL


def start_method() -> str:
    """The method that starts workers on this machine: fork, or spawn where there is no fork."""
    return "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"


def init_worker(worker: int) -> None:
    """Ignore signals that stop a run, and keep inherited objects out of the garbage collector.

    Ctrl-C, a closed terminal and the end of a cluster job reach all processes, but the main process still has to finish
    its batch and save it.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if CAN_BLOCK_SIGNALS:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, lambda *_: signal.alarm(_SECONDS_OF_GRACE))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    gc.freeze()  # the collector would write to inherited pages, which would copy them


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute as a worker does, so that the bits are the same without workers."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def install_sigchld_handler() -> None:
    """Let torch's error about a dead worker, which can come at any time, be raised as a `DataError`.

    torch raises it from a signal handler, which can interrupt the main thread at any statement.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCHLD"):
        return
    handler = signal.getsignal(signal.SIGCHLD)
    if callable(handler) and not getattr(handler, "raises_data_errors", False):
        signal.signal(signal.SIGCHLD, _with_data_errors(handler))


def shut_down(results: Iterator[Any]) -> None:
    """End the workers behind torch's iterator now; a traceback may keep the iterator itself alive for long."""
    shut_down_workers = getattr(results, "_shutdown_workers", None)
    if shut_down_workers is not None:
        shut_down_workers()


def close_at_exit(batches: Generator[Any, None, None]) -> None:
    """Stop the workers before the interpreter waits for them at its exit, if the pass is not finished then."""

    def close() -> None:
        generator = reference()
        if generator is not None:
            generator.close()

    reference = weakref.ref(batches, lambda _: atexit.unregister(close))
    atexit.register(close)


def _with_data_errors(handler: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], Any]:
    def handle(number: int, frame: FrameType | None) -> None:
        with worker_errors_as_data_errors():
            handler(number, frame)

    handle.raises_data_errors = True  # type: ignore[attr-defined]
    return handle


@contextlib.contextmanager
def worker_errors_as_data_errors() -> Iterator[None]:
    """Raise torch's error about a dead worker as a `DataError` with the remedy."""
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        if isinstance(error.__cause__, DataError):  # the signal came while torch waited for the worker
            raise error.__cause__ from None
        if _ORIGINAL in str(error):  # the worker did not die, it raised this exception
            raise DataError(f"A loader worker failed: {as_sentence(str(error).strip().splitlines()[-1])}") from error
        raise DataError(
            f"A loader worker died: {as_sentence(str(error).strip())} Most often the machine ran out of memory (then "
            f"lower `batch_seconds`, `num_workers` or `prefetch`) or of shared memory (then raise the limit "
            "of /dev/shm). With `num_workers: 0` the work is done in this process, which then shows the error itself."
        ) from error

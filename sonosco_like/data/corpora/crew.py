"""The processes that make synthetic speech: each renders whole speakers, and all end with the one that started them.

They are fresh ones: a fork would inherit torch's threads and locks. Each talks to an espeak-ng of its own. They are
killed when the work is done or given up, which loses nothing: a corpus is whole when its manifests are there.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import TracebackType

from sonosco_like.data.corpora.espeak import Espeak
from sonosco_like.data.corpora.rendering import SpeakerJob, Spoken, render_speaker
from sonosco_like.errors import DataError
from sonosco_like.interrupts import STOPPING, signals_held


def render_speakers(jobs: Sequence[SpeakerJob], workers: int) -> Generator[list[Spoken], None, None]:
    """The utterances of each job, in the order of the jobs, made by so many processes, or in this one if it is one."""
    if workers == 1:
        with Espeak() as engine:
            for job in jobs:
                yield render_speaker(engine, job)
        return
    resource_tracker.ensure_running()  # starting it would let signals through that are held below
    with ExitStack() as stack:
        crew = [stack.enter_context(_Worker()) for _ in range(min(workers, len(jobs)))]
        yield from _in_order(crew, jobs)


def _in_order(crew: Sequence[_Worker], jobs: Sequence[SpeakerJob]) -> Generator[list[Spoken], None, None]:
    """Hand a job to whoever is free, and hold back what is done before its turn."""
    waiting = iter(enumerate(jobs))
    busy: dict[Connection, tuple[_Worker, int]] = {}
    done: dict[int, list[Spoken]] = {}
    free = list(crew)
    for number in range(len(jobs)):
        while number not in done:
            for worker, (given, job) in zip(free, waiting, strict=False):
                worker.give(job)
                busy[worker.pipe] = worker, given
            free = []
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                worker, finished = busy.pop(pipe)
                done[finished] = worker.take()
                free.append(worker)
        yield done.pop(number)


class _Worker:
    """One process, seen from the one that started it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        with signals_held():
            self._process.start()
        theirs.close()

    def give(self, job: SpeakerJob) -> None:
        """Send a job; that the process is gone shows itself when its work is taken."""
        try:
            self.pipe.send(job)
        except OSError:
            return

    def take(self) -> list[Spoken]:
        """What came of the job."""
        try:
            result = self.pipe.recv()
        except (EOFError, OSError):
            raise DataError(
                "A process that made synthetic speech died. Is there enough memory? Was this called in a script "
                "without `if __name__ == '__main__':`, which its processes read anew? One worker needs no processes."
            ) from None
        if isinstance(result, Exception):
            raise result
        spoken: list[Spoken] = result
        return spoken

    def __enter__(self) -> _Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _work(pipe: Connection) -> None:
    """Render what comes, until nothing comes any more."""
    _follow_parent()
    with Espeak() as engine:
        while True:
            try:
                pipe.send(render_speaker(engine, pipe.recv()))
            except EOFError:
                return
            except Exception as error:
                pipe.send(error)


def _follow_parent() -> None:
    """Leave Ctrl-C to the process that started this one, and end when that does, however it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in STOPPING[1:]:
        signal.signal(number, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

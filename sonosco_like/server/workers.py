"""The processes behind the server: decoders of uploads, and recognisers with a queue that is worked off in batches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from sonosco_like.errors import UsageError
from sonosco_like.server.children import Child, ChildLostError, Message
from sonosco_like.server.limits import Limits, RefusedError
from sonosco_like.server.metrics import Metrics

_MOST_IN_BATCH = 64
_BATCH_BYTES = 4 * 16_000 * 120  # of float32 samples: two minutes at 16 kHz
_TRIES = 2  # the second one alone: what ends two processes does not get a third
_LONGEST_PAUSE = 10.0  # seconds between two starts of a process that does not start
logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Job:
    """A waveform that waits for a model. Jobs with the same `key`, the model and `n_best`, can share a batch."""

    key: tuple[str, int]
    waveform: bytes
    form: str | None
    answer: asyncio.Future[dict[str, Any]]
    lost: int = field(default=0)  # how many processes ended while they had it


class Recognisers:
    """Processes that hold the models. Each takes what has gathered in the queue as its next batch."""

    def __init__(self, count: int, arguments: tuple[Any, ...], limits: Limits, metrics: Metrics) -> None:
        self._count, self._arguments, self._limits, self._metrics = count, arguments, limits, metrics
        self._queue: deque[_Job] = deque()
        self._arrived = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._ready: set[Child] = set()
        self.models: dict[str, dict[str, Any]] = {}
        metrics.waiting.set_function(lambda: len(self._queue))
        metrics.recognisers.set_function(lambda: len(self._ready))

    @property
    def pids(self) -> list[int]:
        """The processes that are ready."""
        return [child.pid for child in self._ready]

    async def start(self) -> None:
        """Load the models; raises UsageError if one cannot be loaded."""
        started = [
            Child("A recogniser", "recognition", "recogniser_process", *self._arguments) for _ in range(self._count)
        ]
        for about in await asyncio.gather(*(child.start() for child in started)):
            self.models = about["models"]
        self._tasks = [asyncio.create_task(self._keep_working(child)) for child in started]

    async def transcribe(self, model: str, waveform: bytes, n_best: int = 0, form: str | None = None) -> dict[str, Any]:
        """The transcript of a waveform at the sample rate of the model, as plain data."""
        job = _Job((model, n_best), waveform, form, asyncio.get_running_loop().create_future())
        self._put(job)
        return await job.answer

    async def close(self) -> None:
        """End the processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for child in set(self._ready):
            child.kill()

    def _put(self, job: _Job, first: bool = False) -> None:
        if first:
            self._queue.appendleft(job)
        else:
            self._queue.append(job)
        self._arrived.set()

    async def _keep_working(self, child: Child) -> None:
        """Have one process work, and replace it if it ends."""
        pause = 0.0
        while True:
            started = time.monotonic()
            await self._work(child)
            self._metrics.restarts.labels("recogniser").inc()
            logger.warning("A recogniser (process %d) ended; another one takes its place.", child.pid)
            while True:
                child = Child("A recogniser", "recognition", "recogniser_process", *self._arguments)
                pause = 0.0 if time.monotonic() - started > _LONGEST_PAUSE else min(_LONGEST_PAUSE, 2 * pause + 0.1)
                try:
                    await child.start()
                    break
                except Exception as error:  # whatever it is, the server keeps trying
                    logger.warning("A recogniser does not start: %s", error)
                    await asyncio.sleep(pause)

    async def _work(self, child: Child) -> None:
        self._ready.add(child)
        try:
            while not child.ended.is_set():
                if jobs := self._next_batch():
                    await self._recognise(child, jobs)
                else:
                    self._arrived.clear()
                    await _first_of(self._arrived, child.ended)
        finally:
            child.kill()
            self._ready.discard(child)

    def _next_batch(self) -> list[_Job]:
        """The oldest job, with others of its model whose lengths are nearest, since shorter ones are padded.

        A job that a process was lost with stays alone.
        """
        waiting = [job for job in self._queue if not job.answer.done()]  # for the others nobody waits any more
        jobs = waiting[:1]
        if jobs and not jobs[0].lost:
            longest = len(jobs[0].waveform)
            others = [job for job in waiting[1:] if job.key == jobs[0].key and not job.lost]
            for job in sorted(others, key=lambda job: abs(len(job.waveform) - len(jobs[0].waveform))):
                longest = max(longest, len(job.waveform))
                if len(jobs) == _MOST_IN_BATCH or longest * (len(jobs) + 1) > _BATCH_BYTES:
                    break
                jobs.append(job)
        taken = set(jobs)
        self._queue = deque(job for job in waiting if job not in taken)
        return jobs

    async def _recognise(self, child: Child, jobs: list[_Job]) -> None:
        (model, n_best), forms = jobs[0].key, [job.form for job in jobs]
        self._metrics.batch.observe(len(jobs))
        question = Message({"model": model, "n_best": n_best, "forms": forms}, [job.waveform for job in jobs])
        try:
            found = (await child.ask(question, self._limits.timeout)).header["transcripts"]
        except ChildLostError:
            for job in reversed(jobs):
                self._give_back(job)
            return
        for job, transcript in zip(jobs, found, strict=True):
            if job.answer.done():
                continue
            if "error" in transcript:
                job.answer.set_exception(RefusedError(500, "model_failed", transcript["error"]))
            else:
                job.answer.set_result(transcript)

    def _give_back(self, job: _Job) -> None:
        job.lost += 1
        if job.answer.done():
            return
        if job.lost < _TRIES:
            self._put(job, first=True)
        else:
            message = "The process of the model ended twice while it worked on this recording."
            job.answer.set_exception(RefusedError(500, "model_failed", message))


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


class Helpers:
    """A few equal processes, of which each question takes one; one that is lost is replaced."""

    def __init__(self, count: int, metrics: Metrics, *process: Any) -> None:
        self._count, self._metrics, self._process = count, metrics, process
        self._idle: asyncio.Queue[Child | None] = asyncio.Queue()
        self._all: set[Child] = set()

    async def start(self) -> None:
        """Start all of them; raises UsageError if one cannot start."""
        for child in await asyncio.gather(*(self._start() for _ in range(self._count))):
            self._idle.put_nowait(child)

    async def ask(self, question: Message, seconds: float) -> Message:
        """The answer of one of them. Raises ChildLostError if it is lost meanwhile."""
        async with self._borrowed() as child:
            return await child.ask(question, seconds)

    async def close(self) -> None:
        """End all of them."""
        for child in self._all:
            child.kill()

    @contextlib.asynccontextmanager
    async def _borrowed(self) -> AsyncIterator[Child]:
        child = await self._idle.get()
        try:
            if child is None or child.ended.is_set():
                child = await self._replace(child)
            yield child
        finally:
            self._idle.put_nowait(child)

    async def _replace(self, child: Child | None) -> Child:
        if child is not None:
            child.kill()
            self._all.discard(child)
            self._metrics.restarts.labels("helper").inc()
        try:
            return await self._start()
        except UsageError as error:
            raise ChildLostError(str(error)) from None

    async def _start(self) -> Child:
        child = Child(*self._process)
        await child.start()
        self._all.add(child)
        return child

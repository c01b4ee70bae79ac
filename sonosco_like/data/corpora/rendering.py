"""Rendering synthetic speakers to files, in one process or in several.

Nothing here imports torch, so that a new process is ready in a fraction of a second. A speaker's files depend on its
`SpeakerJob` alone: which process renders it, and what that process did before, changes no bit.

The processes are spawned, because a fork would inherit torch's threads and locks. Each has its own espeak-ng. They are
killed when the work is done or given up; this loses nothing, because a corpus is complete only with its manifests.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import threading
import zlib
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType

import numpy as np
import soundfile
from numpy.typing import NDArray

from sonosco_like.data.corpora.channel import SAMPLE_RATE, draw_channel
from sonosco_like.data.corpora.espeak import Espeak
from sonosco_like.data.corpora.grammar import draw_text
from sonosco_like.data.corpora.speakers import draw_speaker, say
from sonosco_like.errors import DataError
from sonosco_like.process import STOP_SIGNALS, block_signals


@dataclass(frozen=True, slots=True)
class SpeakerJob:
    """One speaker to render: the voice, about how many seconds to speak, and the seed."""

    name: str
    voice: str
    split: str
    kind: str
    seconds: float
    variety: float
    seed: tuple[int, ...]
    folder: Path


@dataclass(frozen=True, slots=True)
class SpokenUtterance:
    """One utterance on disk."""

    id: str
    path: Path
    duration: float
    text: str
    speaker: str


def render_speaker(engine: Espeak, job: SpeakerJob) -> list[SpokenUtterance]:
    """Write all utterances of a speaker as 16 kHz FLAC: about `job.seconds` in sum, at least one utterance."""
    random = np.random.default_rng(job.seed)
    speaker, channel = draw_speaker(job.voice, random), draw_channel(random, job.variety)
    folder = job.folder / job.name
    folder.mkdir(parents=True, exist_ok=True)
    spoken: list[SpokenUtterance] = []
    total = 0.0
    engine.restart()
    engine.set_voice(job.voice)
    while not spoken or total + total / len(spoken) / 2 < job.seconds:
        text = _draw_text_of_split(job.kind, job.split, random)
        samples = channel.record(say(engine, speaker, text, random), random)
        path = folder / f"{len(spoken):04d}.flac"
        write_flac(path, samples)
        duration = len(samples) / SAMPLE_RATE
        spoken.append(SpokenUtterance(f"{job.name}-{path.stem}", path, duration, text, job.name))
        total += duration
    return spoken


def split_of_text(text: str) -> str:
    """The split of a text: eight of ten texts are for training, one is for each of the other splits."""
    return {8: "val", 9: "test"}.get(zlib.crc32(text.encode()) % 10, "train")


def write_flac(path: Path, samples: NDArray[np.int16]) -> None:
    """Write the file at once: soundfile would wait for the disk after each file."""
    encoded = io.BytesIO()
    soundfile.write(encoded, samples, SAMPLE_RATE, subtype="PCM_16", format="FLAC")
    path.write_bytes(encoded.getbuffer())


def _draw_text_of_split(kind: str, split: str, random: np.random.Generator) -> str:
    while split_of_text(text := draw_text(kind, random)) != split:
        pass
    return text


def render_speakers(jobs: Sequence[SpeakerJob], workers: int) -> Generator[list[SpokenUtterance], None, None]:
    """The utterances of each job, in order, made by `workers` processes, or by this process if there is one worker."""
    if workers == 1:
        with Espeak() as engine:
            for job in jobs:
                yield render_speaker(engine, job)
        return
    resource_tracker.ensure_running()  # starting it would unblock the signals that are blocked below
    with ExitStack() as stack:
        pool = [stack.enter_context(_Worker()) for _ in range(min(workers, len(jobs)))]
        yield from _in_order(pool, jobs)


def _in_order(pool: Sequence[_Worker], jobs: Sequence[SpeakerJob]) -> Generator[list[SpokenUtterance], None, None]:
    """Give each job to a free worker, and keep results until it is their turn."""
    waiting = iter(enumerate(jobs))
    busy: dict[Connection, tuple[_Worker, int]] = {}
    done: dict[int, list[SpokenUtterance]] = {}
    free = list(pool)
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
    """One process, as an object of the process that started it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        with block_signals():
            self._process.start()
        theirs.close()

    def give(self, job: SpeakerJob) -> None:
        """Send a job; `take` notices if the process has died."""
        try:
            self.pipe.send(job)
        except OSError:
            return

    def take(self) -> list[SpokenUtterance]:
        """The result of the job."""
        try:
            result = self.pipe.recv()
        except (EOFError, OSError):
            raise DataError(
                "A process that made synthetic speech died. Is there enough memory? Was this called in a script "
                "without `if __name__ == '__main__':`, which its processes run again? One worker needs no processes."
            ) from None
        if isinstance(result, Exception):
            raise result
        spoken: list[SpokenUtterance] = result
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
    """Render the jobs that come through the pipe, until it is closed."""
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
    """Leave Ctrl-C to the parent process, and end when the parent ends, also if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in STOP_SIGNALS[1:]:
        signal.signal(number, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

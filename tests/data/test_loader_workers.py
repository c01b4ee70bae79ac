"""The loader's worker processes: what they leave behind when they die, are told to, or are no longer wanted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_loader import assert_same, full_pass, loader

from sonosco_like.data import Alphabet, AudioDataLoader, AudioDataset, BucketSampler
from sonosco_like.data.features import LogMel
from sonosco_like.errors import DataError


def worker_pids() -> list[int]:
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    return [int(pid) for pid in children]


@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_that_dies_is_a_clear_error(corpus: Path, busy: bool) -> None:
    before = set(worker_pids())
    batches = iter(loader(corpus, num_workers=2, prefetch=1))
    next(batches)
    victims = sorted(set(worker_pids()) - before)
    assert len(victims) == 2

    def train() -> None:
        os.kill(victims[0], signal.SIGKILL)
        if busy:  # the news comes while the main process is at work elsewhere
            time.sleep(10)
        list(batches)

    with pytest.raises(DataError, match=r"worker died: .*Killed\. .*num_workers: 0"):
        train()


def test_signals_to_the_whole_group_leave_the_workers_to_the_main_process(corpus: Path) -> None:
    before = set(worker_pids())
    batches = iter(loader(corpus, num_workers=2, prefetch=1))
    received = [next(batches)]
    for pid in set(worker_pids()) - before:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGHUP)
    assert_same(received + list(batches), full_pass(corpus, 0))


def test_a_pass_that_is_abandoned_leaves_no_worker_behind(corpus: Path) -> None:
    before = set(worker_pids())
    batches = iter(loader(corpus, num_workers=2))
    next(batches)
    assert len(set(worker_pids()) - before) == 2
    del batches
    assert not set(worker_pids()) - before


def test_an_interpreter_that_ends_within_a_pass_does_not_hang(corpus: Path, run_python: Callable[..., Any]) -> None:
    code = f"""
from pathlib import Path
from sonosco_like.data.dataset import AudioDataset
from sonosco_like.data.loader import AudioDataLoader
from sonosco_like.data.sampling import BucketSampler
dataset = AudioDataset(manifest=Path({str(corpus)!r}))
batches = iter(AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=2), num_workers=2))
print(len(next(batches)))
"""
    done = run_python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


class Blunder(LogMel):
    """Features with a mistake in their code."""

    def __call__(self, samples: Any) -> Any:
        raise RuntimeError("a mistake of a user")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_in_a_worker_is_told_itself_with_its_utterances(corpus: Path, workers: int) -> None:
    dataset = AudioDataset(manifest=corpus, features=Blunder())
    batches = AudioDataLoader(dataset=dataset, sampler=BucketSampler(batch_size=2, shuffle=False), num_workers=workers)
    with pytest.raises(
        DataError, match=r"a batch of the utterances \S+, \S+: RuntimeError: a mistake of a user"
    ) as told:
        list(batches)
    assert "died" not in str(told.value)
    assert "in __call__" in "".join(told.value.__notes__), "where it happened is in a note"


class Slipping(Alphabet):
    """A tokenizer with a mistake in its code."""

    def encode(self, text: str) -> list[int]:
        return [len(text) // 0]


def test_an_exception_of_a_tokenizer_names_its_row(corpus: Path) -> None:
    batches = AudioDataLoader(
        dataset=AudioDataset(manifest=corpus, tokenizer=Slipping()), sampler=BucketSampler(batch_size=2), num_workers=1
    )
    with pytest.raises(DataError, match=r"row \d+ \(utterance .*\): ZeroDivisionError"):
        list(batches)

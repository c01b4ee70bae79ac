"""A save that dies at any moment leaves the old or the new, never half, and never stands in the way of the next one."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crash_worker import INTERRUPTED, REFUSED, SAVED, saved_object, whole_number

from sonosco_like.errors import StorageError
from sonosco_like.serialization import load, save

OLD, NEW, NEXT = 1, 2, 3
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills processes and reads /proc")


class Worker:
    """The process of crash_worker.py."""

    def __init__(self) -> None:
        repository = Path(__file__).parents[2]
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("crash_worker.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(repository)},
        )  # fmt: skip

    def start(self, **job: Any) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job, default=str) + "\n")
        self.process.stdin.flush()
        return int(self._line())

    def status(self) -> int:
        return int(self._line())

    def run(self, **job: Any) -> int:
        self.start(**job)
        return self.status()

    def close(self) -> None:
        self.process.communicate()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> Path:
    """A folder with a complete former save of each kind, to be copied."""
    place = tmp_path_factory.mktemp("old")
    for name in ("checkpoint", "config.yaml"):
        save(saved_object(OLD, place / name), place / name)
    return place


def _prepare(place: Path, old: Path, name: str, before: str) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if before != "nothing":
        copy = shutil.copytree if (old / name).is_dir() else shutil.copy
        copy(old / name, place / name)
    if before == "leftovers":  # of an earlier crash of each kind
        (place / f".{name}.saving").mkdir()
        (place / f".{name}.saving" / "tensors.safetensors").write_bytes(b"half")
        shutil.copytree(old / "checkpoint", place / f".{name}.previous")
        (place / f".{name}.previous" / "trainer.yaml").unlink()


def _found(path: Path) -> int | None:
    """The number of the save at a path, or None if there is none at all."""
    if not path.exists() and not path.with_name(f".{path.name}.previous").exists():
        with pytest.raises(StorageError, match="does not exist"):
            load(path)
        return None
    return whole_number(path)


def _names(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


CASES = [
    ("checkpoint", "nothing"), ("checkpoint", "an old one"), ("checkpoint", "leftovers"),
    ("config.yaml", "nothing"), ("config.yaml", "an old one"),
]  # fmt: skip


@pytest.mark.parametrize("way", ["kill", "power cut", "interrupt"])
@pytest.mark.parametrize(("name", "before"), CASES)
def test_stopped_before_every_single_file_operation(worker, old, tmp_path, name, before, way):
    place = tmp_path / "place"
    path = place / name
    former = None if before == "nothing" else OLD
    outcomes = []
    for operation in range(1, 200):
        _prepare(place, old, name, before)
        status = worker.run(kind="stop", path=path, number=NEW, operation=operation, way=way)
        if way == "interrupt" and status != SAVED:
            assert status == INTERRUPTED
        elif status != SAVED:
            assert status == -signal.SIGKILL
        found = _found(path)
        outcomes.append(found)
        assert found in (former, NEW)
        assert found == NEW or status != SAVED
        save(saved_object(NEXT, path), path)
        assert whole_number(path) == NEXT
        assert _names(place) == {name}, "nothing of the crash is left after the next save"
        if status == SAVED:
            break
    assert status == SAVED
    assert len(outcomes) >= 4
    assert set(outcomes) == {former, NEW}
    assert outcomes == sorted(outcomes, key=lambda found: found == NEW), "once the new one is there, it stays"


@pytest.mark.parametrize(("name", "before"), CASES)
def test_everything_is_on_disk_before_it_takes_its_place(worker, old, tmp_path, name, before):
    place = tmp_path / "place"
    _prepare(place, old, name, before)
    assert worker.run(kind="stop", path=place / name, number=NEW, operation=0, way="kill") == SAVED
    operations = json.loads((tmp_path / "operations.json").read_text())
    taken = next(
        index for index, each in enumerate(operations) if each[0] == "os.rename" and each[2] == str(place / name)
    )
    aside = operations[taken][1]
    flushed_before = {each[1] for each in operations[:taken] if each[0] == "fsync"}
    files = {f"{aside}/{file.name}" for file in (place / name).iterdir()} if (place / name).is_dir() else set()
    assert flushed_before >= {aside, *files}
    assert str(place) in {each[1] for each in operations[taken:] if each[0] == "fsync"}


def _number_told(told: Path) -> int:
    content = told.read_bytes() if told.exists() else b""
    return int(content) if len(content) == 12 else 0


@pytest.mark.parametrize("name", ["checkpoint", "config.yaml"])
def test_killed_at_random_moments_while_saving_over_and_over(worker, tmp_path, name):
    place, told = tmp_path / "place", tmp_path / "told"
    place.mkdir()
    path = place / name
    moments = random.Random(7)
    number = 1
    for _ in range(12):
        pid = worker.start(kind="for ever", path=path, number=number, told=told)
        while _number_told(told) < number:
            time.sleep(0.0005)
        time.sleep(moments.random() * 0.02)
        os.kill(pid, signal.SIGKILL)
        assert worker.status() == -signal.SIGKILL
        saved = _number_told(told)
        found = whole_number(path)
        assert found in (saved, saved + 1), "a save that was reported done is never lost"
        assert _names(place) <= {name, f".{name}.saving", f".{name}.previous"}, "leftovers do not pile up"
        number = found + 1
    save(saved_object(number, path), path)
    assert _names(place) == {name}


def test_reading_while_another_process_saves_is_never_a_mix(worker, tmp_path):
    """What was checked is what is used; the writer is not disturbed by readers either."""
    path = tmp_path / "checkpoint"
    save(saved_object(1, path), path)
    pid = worker.start(kind="for ever", path=path, number=2, told=tmp_path / "told")
    numbers = [1]
    try:
        while len(numbers) < 400 or len(set(numbers)) < 4:  # until saves and loads really overlapped
            os.kill(pid, 0)  # a save that failed would have ended the process, and this test would wait for ever
            with contextlib.suppress(StorageError):  # it may be gone at this very moment, but never be of two pieces
                numbers.append(whole_number(path))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status = worker.status()
    assert status == -signal.SIGKILL, "no save failed"
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("size", [0, 100, 1500, 3000, 40_000])
@pytest.mark.parametrize(("name", "before"), CASES)
def test_a_disk_that_is_full_is_a_storage_error_and_the_old_one_stays(worker, old, tmp_path, name, before, size):
    place = tmp_path / "place"
    path = place / name
    _prepare(place, old, name, before)
    too_small = size < (2000 if name == "config.yaml" else 80_000)
    status = worker.run(kind="limited", path=path, number=NEW, bytes=size)
    assert status == (REFUSED if too_small else SAVED)
    if too_small:
        assert _found(path) == (None if before == "nothing" else OLD)
        assert f".{name}.saving" not in _names(place), "the half that was written does not fill the disk further"
    save(saved_object(NEXT, path), path)
    assert whole_number(path) == NEXT
    assert _names(place) == {name}


def test_an_old_save_comes_back_only_where_a_crash_took_the_new_one_away(tmp_path):
    path = tmp_path / "checkpoint"
    save(saved_object(OLD, path), path)
    path.rename(tmp_path / ".checkpoint.previous")
    assert whole_number(path) == OLD
    assert _names(tmp_path) == {"checkpoint"}
    shutil.rmtree(path)
    with pytest.raises(StorageError, match="does not exist"):
        load(path)

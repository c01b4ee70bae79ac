"""A process that saves and dies: each line of its input is one job, done in a process forked for it.

Forking keeps torch imported once. The worker's number is printed before it starts, its exit status when it is gone.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch

from sonosco_like.errors import StorageError
from sonosco_like.serialization import load, save, serializable, state

SAVED, REFUSED, INTERRUPTED = 0, 3, 4
_COUNTED = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "fsync")


@serializable
class Weights:
    """Something to save whose three files all tell which save they belong to."""

    number: int
    note: str = ""
    step: int = state(0)
    history: list[int] = state([])
    tensor: Any = state(None)


def weights(number: int) -> Weights:
    """What save number `number` saves."""
    made = Weights(number=number, note="x" * 2000)
    made.step, made.history, made.tensor = number, [number] * 20, torch.full((20_000,), float(number))
    return made


def whole_number(path: Path) -> int:
    """The number of the save found at a path, which must be of one piece."""
    found = load(path, Weights)
    assert found.step == found.number
    assert found.history == [found.number] * 20
    assert found.tensor is None or bool((found.tensor == found.number).all())
    return int(found.number)


def saved_object(number: int, path: Path) -> Weights:
    """What is saved at a path: a single text cannot hold the tensor."""
    made = weights(number)
    if path.suffix == ".yaml":
        made.tensor = None
    return made


class Stopper:
    """Counts file operations within a folder and dies just before the given one."""

    def __init__(self, root: Path, operation: int, way: str) -> None:
        self.root, self.operation, self.way = str(root), operation, way
        self.count = 0
        self.log: list[list[str]] = []
        self.on_disk = {path.stat().st_ino for path in root.rglob("*")}
        self.flush = os.fsync
        os.fsync = self.fsync  # type: ignore[assignment]
        sys.addaudithook(self.hear)

    def fsync(self, descriptor: Any) -> None:
        self.note("fsync", str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        self.flush(descriptor)
        self.on_disk.add(os.fstat(descriptor).st_ino)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _COUNTED:
            return
        names = [str(argument) for argument in arguments if isinstance(argument, (str, os.PathLike))]
        outside = event == "open" and not (names and names[0].startswith(self.root))
        if not outside:
            self.note(event, *names)

    def note(self, event: str, *names: str) -> None:
        self.count += 1
        self.log.append([event, *names])
        if self.count == self.operation:
            self.stop()

    def stop(self) -> None:
        if self.way == "interrupt":
            raise KeyboardInterrupt
        if self.way == "power cut":  # what was never flushed is lost, here by half
            for path in Path(self.root).rglob("*"):
                if path.is_file() and path.stat().st_ino not in self.on_disk:
                    os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)


def _save_for_ever(path: Path, number: int, told: Path) -> NoReturn:
    with told.open("wb", buffering=0) as file:
        while True:
            save(saved_object(number, path), path)
            os.pwrite(file.fileno(), b"%012d" % number, 0)
            number += 1


def _save_once(path: Path, number: int, stopper: Stopper | None = None) -> int:
    try:
        save(saved_object(number, path), path)
    except StorageError:
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    if stopper is not None:
        stopper.operation = 0
        (path.parent.parent / "operations.json").write_text(json.dumps(stopper.log))
    return SAVED


def _work(job: dict[str, Any]) -> int:
    path, number = Path(job["path"]), job["number"]
    if job["kind"] == "for ever":
        _save_for_ever(path, number, Path(job["told"]))
    if job["kind"] == "limited":
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["bytes"], job["bytes"]))
        return _save_once(path, number)
    return _save_once(path, number, Stopper(path.parent, job["operation"], job["way"]))


def main() -> None:
    """Do the jobs given on standard input, one JSON object to a line."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        worker = os.fork()
        if worker == 0:
            os._exit(_work(json.loads(line)))
        print(worker, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]), flush=True)


if __name__ == "__main__":
    main()

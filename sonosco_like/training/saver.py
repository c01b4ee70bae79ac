"""Saving checkpoints in the background: the training thread copies the tensors, another thread writes them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sonosco_like.errors import StorageError
from sonosco_like.serialization import Origin, Snapshot, serializable

logger = logging.getLogger(__name__)


@serializable
class CheckpointSaver:
    """Writes checkpoints, and reports those that could not be written.

    With `background`, training waits for the copy of the tensors but not for the disk. There is one save at a time, and
    the next one waits for it: so there is never more than one copy in memory, and a slow disk loses no checkpoint. The
    next save uses the memory of the copy again, because allocating it takes longer than copying. `on_failure` is the
    reaction to a failed save, on a full disk for example: a warning (`continue`), or the end of the run (`stop`).
    Earlier checkpoints stay intact in any case. `failed` holds the paths that could not be written; `listeners` are
    called with the path of every save that is on disk.
    """

    background: bool = True
    on_failure: Literal["continue", "stop"] = "continue"

    def __post_init__(self) -> None:
        self._copies = _Copies()
        self.failed: set[Path] = set()
        self.listeners: list[Callable[[Path], None]] = []
        self._failures: deque[Exception] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._write: Future[bool] | None = None

    def save(self, value: Any, path: Path, origin: Origin | None = None) -> None:
        """Copy an object graph as it is now, and write the copy to `path`; `origin` names its run and step.

        A Snapshot is written as it is. Raises ConfigError at once if the graph cannot be saved at all.
        """
        if self._write is not None:
            self._write.result()
        copy = self._copies.take if self.background else False
        snapshot = value if isinstance(value, Snapshot) else Snapshot(value, copy, origin)
        self._write = self._submit(lambda: self._write_out(snapshot, path))

    def then(self, action: Callable[[], None]) -> None:
        """Call `action` when the last save is on disk; never, if that save failed."""
        saved = self._write
        self._submit(lambda: saved is not None and saved.result() and self._try(action))

    def check(self) -> None:
        """Report the failures since the last check, by a warning or by StorageError."""
        while self._failures:
            failure = self._failures.popleft()
            if self.on_failure == "stop":
                raise StorageError(f"A checkpoint could not be saved, and `on_failure` is stop. {failure}") from failure
            logger.warning("A checkpoint could not be saved; training goes on. %s", failure)

    def wait(self) -> None:
        """Return when every save is on disk or has failed."""
        self._submit(lambda: None).result()

    def close(self) -> None:
        """Wait, then free the thread and the memory of the copy. The saver can be used again afterwards."""
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = self._write = None
        self._copies = _Copies()

    def _write_out(self, snapshot: Snapshot, path: Path) -> bool:
        if not self._try(lambda: snapshot.write(path)):
            self.failed.add(path)
            return False
        self.failed.discard(path)
        for listener in self.listeners:
            self._try(lambda listener=listener: listener(path))  # type: ignore[misc]
        return True

    def _try(self, action: Callable[[], Any]) -> bool:
        """Call `action`, and keep its exception until the training thread calls `check`."""
        try:
            action()
        except Exception as error:
            self._failures.append(error)
            return False
        return True

    def _submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Run a job after the earlier ones: in the thread, or at once without `background`."""
        if self.background:
            self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="saving")
            return self._pool.submit(job)
        done: Future[Any] = Future()
        done.set_result(job())
        return done


class _Copies:
    """Copies of tensors in buffers that are used again; tensors of a GPU are copied to pinned memory."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Copy tensors by name. This overwrites the copies that were returned before."""
        self._buffers = {name: self._buffer(name, tensor) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            self._buffers[name].copy_(tensor, non_blocking=True)
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.synchronize()
        return dict(self._buffers)

    def _buffer(self, name: str, tensor: Tensor) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is not None and buffer.shape == tensor.shape and buffer.dtype == tensor.dtype:
            return buffer
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)

"""Saving without waiting for the disk: training copies its tensors and goes on, a thread writes them."""

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
from sonosco_like.serialization import Snapshot, serializable
from sonosco_like.serialization.origin import Origin

logger = logging.getLogger(__name__)


@serializable
class CheckpointSaver:
    """Writes checkpoints, and says when one could not be written.

    With `background`, training waits for the copy of the tensors and not for the disk. One save is in flight at a time:
    the next one waits for it, so that there is never more than one copy in memory, and no checkpoint is left out
    because the disk was slow. The memory of the copy is kept for the next one, since to get it anew takes longer than
    to copy. `on_failure` says what it means that a save failed, because the disk is full for example: a warning
    (`continue`), or the end of the run (`stop`). The checkpoints that were there before are intact in any case.
    `failed` holds the paths of those that could not be written; `listeners` are called with the path of every save
    that is on disk.
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
        """Take a copy of an object graph as it is now, and have it written to `path`; `origin` says whose it is.

        A Snapshot is written as it is. What cannot be saved at all is refused here and now, by ConfigError.
        """
        if self._write is not None:
            self._write.result()
        copy = self._copies.take if self.background else False
        snapshot = value if isinstance(value, Snapshot) else Snapshot(value, copy, origin)
        self._write = self._submit(lambda: self._write_out(snapshot, path))

    def then(self, action: Callable[[], None]) -> None:
        """Do something once the save that was handed over last is on disk; never, if that one failed."""
        saved = self._write
        self._submit(lambda: saved is not None and saved.result() and self._guarded(action))

    def check(self) -> None:
        """Report what failed since the last time: as a warning, or by raising StorageError."""
        while self._failures:
            failure = self._failures.popleft()
            if self.on_failure == "stop":
                raise StorageError(f"A checkpoint could not be saved, and `on_failure` is stop. {failure}") from failure
            logger.warning("A checkpoint could not be saved; training goes on. %s", failure)

    def wait(self) -> None:
        """Return when all that was handed over is on disk or has failed."""
        self._submit(lambda: None).result()

    def close(self) -> None:
        """Wait, then give back the thread and the memory of the copy. The saver may be used again afterwards."""
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = self._write = None
        self._copies = _Copies()

    def _write_out(self, snapshot: Snapshot, path: Path) -> bool:
        if not self._guarded(lambda: snapshot.write(path)):
            self.failed.add(path)
            return False
        self.failed.discard(path)
        for listener in self.listeners:
            self._guarded(lambda listener=listener: listener(path))  # type: ignore[misc]
        return True

    def _guarded(self, action: Callable[[], Any]) -> bool:
        """Do something; an exception waits for the training thread to ask for it."""
        try:
            action()
        except Exception as error:
            self._failures.append(error)
            return False
        return True

    def _submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Have a job done after those before it: in the thread, or at once."""
        if self.background:
            self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="saving")
            return self._pool.submit(job)
        done: Future[Any] = Future()
        done.set_result(job())
        return done


class _Copies:
    """Copies of tensors in memory that is used again and again; those of a GPU in pinned memory."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Copy tensors by name. What was given out before is overwritten."""
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

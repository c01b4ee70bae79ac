"""A saved trainer: the thread that writes checkpoints, and the weights with which the saved trainer is used."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sonosco_like.errors import StorageError, UsageError
from sonosco_like.runs.checkpoints import PARTS
from sonosco_like.serialization import Origin, Snapshot, serializable, state

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


@serializable
class WeightAverage:
    """An exponential moving average of the weights, updated at every optimizer step.

    The share of the old average is `decay`, less in the beginning: (1 + n) / (10 + n) after n steps, so that the first
    weights are soon forgotten. Validations measure it beside the weights themselves, as `val_ema_<measure>`,
    and a finished model is used with it. Statistics such as those of batch normalisation are averaged too.
    """

    decay: float = 0.999
    steps: int = state(0)

    def __post_init__(self) -> None:
        if not 0 < self.decay < 1:
            raise UsageError(f"`decay` must lie between 0 and 1, got {self.decay}.")
        self.weights: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Add the present weights of a model to the average."""
        current = model.state_dict()
        if not self.weights:
            self.weights = {name: weight.clone() for name, weight in current.items()}
        self.steps += 1
        share = 1 - min(self.decay, (1 + self.steps) / (10 + self.steps))
        averaged = [name for name, weight in current.items() if weight.is_floating_point()]
        torch._foreach_lerp_([self.weights[name] for name in averaged], [current[name] for name in averaged], share)
        for name in current.keys() - set(averaged):
            self.weights[name].copy_(current[name])

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The model with the averaged weights inside the block; afterwards with its own."""
        own = {name: weight.clone() for name, weight in model.state_dict().items()}
        model.load_state_dict(self.weights)
        try:
            yield
        finally:
            model.load_state_dict(own)

    def state_dict(self) -> dict[str, Any]:
        """The averaged weights."""
        return {"weights": self.weights}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue from averaged weights."""
        self.weights = dict(content["weights"])


_State = dict[str, Any]


class UsedWeights:
    """The record in a checkpoint about its weights.

    A checkpoint that is the best by a measure is used with the weights that were measured: the `plain` ones, or their
    average (`averaged`). At the end of a training, callbacks replace the weights by the best ones or by a mean of
    several; `origin` says where they are from. Only `final/` holds these. Each checkpoint still holds the weights of
    the training, whenever it is written, and a continued training starts from them.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._own: dict[str, _State] = {}  # those of the training, while others are in their place
        self._best: tuple[int, str] = (-1, "")  # the step of the best checkpoint, and which weights were measured
        self.origin = ""
        self.kind = ""

    def note_best(self, kind: str) -> None:
        """Record which weights made this step the best; of several measures, the first one counts."""
        step = self._trainer.global_step
        if kind and self._best[0] != step:
            self._best = step, kind

    def put(self, weights: Mapping[str, _State], origin: str, kind: str = "") -> None:
        """Give the model, and the average of its weights if there is one, other weights: their states by name."""
        self._own = self.of_training()
        self.origin, self.kind = origin, kind
        self._load(weights)

    def put_mean(self, weights: list[Mapping[str, _State]], origin: str) -> None:
        """Give the model, and the average of its weights, the mean of several states."""
        self.put(mean_of(weights), origin)

    def of_training(self) -> dict[str, _State]:
        """The weights that the training ended with."""
        return self._own or self._present()

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """The model with the weights of the training inside the block."""
        if not self._own:
            yield
            return
        final, origin = self._present(), self.origin
        self.origin = ""
        self._load(self._own)
        try:
            yield
        finally:
            self.origin = origin
            self._load(final)

    def give_back(self) -> None:
        """Continue from the weights of the training. Raises UsageError if only `final/` is left, which has others."""
        if self._own:
            self._load(self._own)
        elif self.origin and not self._trainer.session.is_finished:
            raise UsageError(
                f"This training cannot go on: the only weights that are left are {self.origin}, and those it ended "
                "with were in the checkpoints, which are gone. Begin a new run from these weights: --set "
                "init_from=RUN/final"
            )
        else:
            return
        self._own, self.origin, self.kind = {}, "", ""

    def state_dict(self) -> dict[str, Any]:
        """The origin of the weights, and which are used; empty if there is no choice."""
        final = {"origin": self.origin, "kind": self.kind} if self.origin else {}
        step, kind = self._best
        return {**final, **({"judged_at": step, "judged": kind} if kind else {})}

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Take over the origin of the loaded weights."""
        self.origin, self.kind = content.get("origin", ""), content.get("kind", "")
        self._best = content.get("judged_at", -1), content.get("judged", "")

    def _present(self) -> dict[str, _State]:
        parts = {name: getattr(self._trainer, name, None) for name in PARTS}
        return {name: _copied(part.state_dict()) for name, part in parts.items() if part is not None}

    def _load(self, weights: Mapping[str, _State]) -> None:
        for name, content in weights.items():
            getattr(self._trainer, name).load_state_dict(_copied(content))
        self._trainer.validator.forget_predictions()  # they were made with other weights


def mean_of(states: list[Any]) -> Any:
    """The mean of several states, tensor by tensor; of values that cannot be averaged, such as counts, the last one."""
    last = states[-1]
    if isinstance(last, Mapping):
        return {name: mean_of([state[name] for state in states]) for name in last}
    if isinstance(last, Tensor) and (last.is_floating_point() or last.is_complex()):
        wide = torch.complex128 if last.is_complex() else torch.float64
        total = torch.zeros_like(last, dtype=wide)
        for state in states:
            total += state.to(last.device, wide)
        return (total / len(states)).to(last.dtype)
    return last


def _copied(state: Any) -> Any:
    if isinstance(state, Mapping):
        return {name: _copied(value) for name, value in state.items()}
    return state.clone() if isinstance(state, Tensor) else state

"""What the processes that train together exchange: roll calls, plain data, and the gradients and buffers of a model.

Every exchange begins with a roll call: a small sum over all processes, to which each process adds the place it is at. A
process that stops or fails reports this in its next roll call, and the others learn it in theirs. So no process waits
for one that does not come, and a Stop takes effect in all of them between the same two exchanges.
"""

from __future__ import annotations

import base64
import json
import sys
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, distributed, nn

from sonosco_like.errors import ConfigError, DataError, MissingPackageError, SonoscoError, UsageError
from sonosco_like.events import CallbackError, Scope, Stop

_KIND, _CONTENT = "kind", "content"


def to_plain(value: Any) -> Any:
    """Numbers, texts, lists, tuples, sets, mappings, tensors and arrays as plain data; UsageError for all else."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [to_plain(each) for each in value]
    if isinstance(value, (tuple, set)):
        return _tagged("tuple" if isinstance(value, tuple) else "set", [to_plain(each) for each in value])
    if isinstance(value, dict):
        return _tagged("dict", [[to_plain(key), to_plain(each)] for key, each in value.items()])
    if isinstance(value, bytes):
        return _tagged("bytes", _as_text(value))
    if isinstance(value, (np.ndarray, np.generic)):
        return _tagged("array", [value.dtype.str, list(value.shape), _as_text(value.tobytes())])
    if isinstance(value, Tensor):
        return _tagged("tensor", [str(value.dtype).removeprefix("torch."), list(value.shape), _as_text(_bytes(value))])
    raise UsageError(f"State of {type(value).__name__} cannot be sent to another process.")


def from_plain(plain: Any) -> Any:
    """The state that `to_plain` converted."""
    if isinstance(plain, list):
        return [from_plain(each) for each in plain]
    if not isinstance(plain, dict):
        return plain
    kind, content = plain[_KIND], plain[_CONTENT]
    if kind in ("tuple", "set"):
        return (tuple if kind == "tuple" else set)(from_plain(each) for each in content)
    if kind == "dict":
        return {from_plain(key): from_plain(each) for key, each in content}
    if kind == "bytes":
        return base64.b64decode(content)
    name, shape, text = content
    values = bytearray(base64.b64decode(text))
    if kind == "array":
        return np.frombuffer(values, np.dtype(name)).reshape(shape)
    dtype = getattr(torch, name)
    return torch.frombuffer(values, dtype=dtype).reshape(shape) if values else torch.empty(shape, dtype=dtype)


def _tagged(kind: str, content: Any) -> dict[str, Any]:
    return {_KIND: kind, _CONTENT: content}


def _as_text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _bytes(tensor: Tensor) -> bytes:
    content: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return bytes(content.tobytes())


MOST_NUMBERS = 61
_MISTAKES = (UsageError, ConfigError, DataError, MissingPackageError)
_TROUBLE, _PLACE, _SQUARE, _NUMBERS = range(4)
_PLACES = 99991  # a prime, so that the sum of its squares over all processes is exact in float64

# What was exchanged last. A thread of gloo lets go of a tensor a moment after we have it back, and needs for that the
# interpreter: a process that is just ending would be aborted (pytorch pull request 179291). So we let go last.
exchanged: deque[Tensor] = deque(maxlen=32)
_LONGEST_WAIT = 10.0  # seconds


class ProcessFailedError(SonoscoError):
    """Another process failed; the message names it and its error."""

    exit_code = 1


class ProcessLostError(SonoscoError):
    """Another process has ended, or does not answer."""

    exit_code = 1


class Consensus:
    """The roll calls of one process among `size`.

    `limit` is how long it waits for the others; without one it waits until they come, or their processes end.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.limit: timedelta | None = None
        self.is_over = False  # all know of a failure, or have ended well: there is nothing more to report
        self.is_lost = False  # one of them is gone: there is nothing more to exchange

    def barrier(self, place: str, numbers: Sequence[float] = ()) -> list[float]:
        """The sums of numbers over all processes, when all are here. Raises the Stop or the failure of a process."""
        code = float(zlib.crc32(place.encode()) % _PLACES)
        sums = self._sum([0.0, code, code * code, *numbers])
        if sums[_TROUBLE]:
            raise self._resolve(None)
        if sums[_SQUARE] * self.size != sums[_PLACE] ** 2:
            places = ", ".join(f"process {rank} at {name!r}" for rank, name in enumerate(self.exchange(place)))
            raise UsageError(
                f"The processes are at different places: {places}. A callback that runs in some processes only "
                f"(`ranks`) must not call what all processes do together, such as evaluate()."
            )
        return sums[_NUMBERS : _NUMBERS + len(numbers)]

    def report(self, trouble: Exception | None) -> Exception:
        """Answer the roll call with a Stop or a failure of this process; returns the result on which all agree."""
        try:
            self._sum([1.0])
            return self._resolve(trouble)
        except ProcessLostError as lost:
            return lost if trouble is None or isinstance(trouble, Stop) else trouble

    def exchange(self, content: Any) -> list[Any]:
        """The content, plain data that JSON can hold, of every process in the order of their ranks; without a call."""
        text = json.dumps(content).encode()
        length = torch.tensor([len(text)])
        self._done(distributed.all_reduce(length, op=distributed.ReduceOp.MAX, async_op=True))
        padded = torch.full((int(length),), ord(" "), dtype=torch.uint8)
        padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        found = [torch.empty_like(padded) for _ in range(self.size)]
        exchanged.extend([length, padded, *found])
        self._done(distributed.all_gather(found, padded, async_op=True))
        return [json.loads(each.numpy().tobytes()) for each in found]

    def _sum(self, numbers: Sequence[float]) -> list[float]:
        if self.is_lost:
            raise ProcessLostError("Another process of this run has ended; its own message gives the reason.")
        call = torch.zeros(_NUMBERS + MOST_NUMBERS, dtype=torch.float64)
        call[: len(numbers)] = torch.tensor(numbers, dtype=torch.float64)
        exchanged.append(call)
        self._done(distributed.all_reduce(call, async_op=True))
        sums: list[float] = call.tolist()
        return sums

    def _done(self, work: Any) -> None:
        try:
            work.wait(self.limit) if self.limit else work.wait()
        except RuntimeError as error:
            self.is_over = self.is_lost = True
            late = f" or took longer than {self.limit}, which is the `process_timeout`" if self.limit else ""
            raise ProcessLostError(
                f"Another process of this run has ended{late}; its own message gives the reason."
            ) from error

    def _resolve(self, own: Exception | None) -> Exception:
        """The result for all processes if some of them stop or fail: the first failure, otherwise the widest Stop."""
        reports = self.exchange(_as_data(own))
        failed = [rank for rank, data in enumerate(reports) if data and "failure" in data]
        self.is_over = bool(failed)
        if failed:
            return own if self.rank in failed and own is not None else _failure(failed[0], reports[failed[0]])
        scopes = get_args(Scope)
        stops = [data for data in reports if data]
        widest = max(stops, key=lambda data: scopes.index(data["scope"]))
        agreed = own if isinstance(own, Stop) and own.scope == widest["scope"] else Stop(**widest)
        agreed.agreed = True
        return agreed


def release_exchanged() -> None:
    """Wait until no thread of gloo uses the last exchanged data; needed before the interpreter ends."""
    deadline = time.monotonic() + _LONGEST_WAIT
    while exchanged:
        tensor = exchanged.popleft()
        while sys.getrefcount(tensor) > 2 and time.monotonic() < deadline:  # held by this name and the call alone
            time.sleep(0.001)


def is_mistake(error: BaseException) -> bool:
    """Whether the error is a mistake of the user, also if a callback found it."""
    found = error.__cause__ if isinstance(error, CallbackError) else error
    return isinstance(found, _MISTAKES)


def _as_data(trouble: Exception | None) -> dict[str, Any] | None:
    if trouble is None:
        return None
    if isinstance(trouble, Stop):
        return {"reason": trouble.reason, "scope": trouble.scope}
    message = str(trouble) if isinstance(trouble, SonoscoError) else f"{type(trouble).__name__}: {trouble}"
    return {"failure": message, "mistake": is_mistake(trouble)}


def _failure(rank: int, data: dict[str, Any]) -> SonoscoError:
    kind = UsageError if data["mistake"] else ProcessFailedError
    return kind(f"Process {rank} failed: {data['failure']}")


_MESSAGE_BYTES = 25 * 2**20  # as DistributedDataParallel's


def persistent_buffers(model: nn.Module) -> list[Tensor]:
    """The buffers of a model that are saved with it; other buffers, such as caches, may differ between processes."""
    return [
        buffer
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and name not in module._non_persistent_buffers_set
    ]


class Sharing:
    """Exchanges gradients and buffers batch by batch; the memory of the messages is used again."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, int], Tensor] = {}

    @torch.no_grad()
    def average_gradients(self, parameters: Sequence[nn.Parameter], size: int, some_unused: bool) -> None:
        """Give each parameter the mean of its gradients over all processes.

        `some_unused` says that in some process not every parameter has a gradient. One that has none anywhere stays
        without, so that optimizers leave it alone; elsewhere a missing one counts as zero, as in one large batch.
        """
        if some_unused:
            parameters = _used_anywhere(parameters)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        dense = [_as_real(gradient) for gradient in gradients if not gradient.is_sparse]
        self._in_messages("gradients", dense, lambda message: _summed(message.div_(size)))
        for gradient in gradients:
            if gradient.is_sparse:
                distributed.all_reduce(gradient.div_(size))

    @torch.no_grad()
    def broadcast_buffers(self, model: nn.Module) -> None:
        """Give every process the buffers of the first one, such as the statistics of batch normalisation."""
        self._in_messages("buffers", persistent_buffers(model), _from_first)

    def _in_messages(self, kind: str, tensors: Sequence[Tensor], send: Callable[[Tensor], Any]) -> None:
        """Send tensors in few flat messages at the same time, and take the results."""
        sent = []
        for number, part in enumerate(_parts(tensors)):
            message = self._message((kind, number), part)
            sent.append((part, message, send(message)))
        for part, message, work in sent:
            work.wait()
            pieces = torch.split(message, [tensor.numel() for tensor in part])
            torch._foreach_copy_(part, [piece.view(tensor.shape) for piece, tensor in zip(pieces, part, strict=True)])

    def _message(self, key: tuple[str, int], part: list[Tensor]) -> Tensor:
        size = sum(tensor.numel() for tensor in part)
        before = self._messages.get(key)
        wanted = size, part[0].dtype, part[0].device
        fits = before is not None and (before.numel(), before.dtype, before.device) == wanted
        flat = [tensor.reshape(-1) for tensor in part]
        self._messages[key] = torch.cat(flat, out=before) if fits else torch.cat(flat)
        return self._messages[key]


@torch.no_grad()
def broadcast_weights(model: nn.Module) -> None:
    """Give every process the weights and buffers of the first one."""
    for tensor in (*model.parameters(), *persistent_buffers(model)):
        values = tensor.detach().contiguous()
        _from_first(values.view(-1)).wait()
        tensor.copy_(values)


def _summed(message: Tensor) -> Any:
    exchanged.append(message.view(-1))
    return distributed.all_reduce(exchanged[-1], async_op=True)


def _from_first(message: Tensor) -> Any:
    exchanged.append(message.view(torch.uint8))  # as gloo does not know every type
    return distributed.broadcast(exchanged[-1], 0, async_op=True)


def _used_anywhere(parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """The parameters that have a gradient in some process, now with one in each."""
    used = torch.tensor([float(parameter.grad is not None) for parameter in parameters])
    exchanged.append(used)
    distributed.all_reduce(used)
    found = [parameter for parameter, count in zip(parameters, used.tolist(), strict=True) if count]
    for parameter in found:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return found


def _parts(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors of one kind and device together, up to the size of a message."""
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        kinds[tensor.dtype, tensor.device].append(tensor)
    for same in kinds.values():
        part: list[Tensor] = []
        size = 0
        for tensor in same:
            if part and size + tensor.nbytes > _MESSAGE_BYTES:
                yield part
                part, size = [], 0
            part.append(tensor)
            size += tensor.nbytes
        yield part


def _as_real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor

"""How processes that train together learn what happened in one of them, wherever the others are.

Whatever they exchange begins with a roll call: a small sum over all processes, to which each says where it is. A
process that stops or fails answers its next roll call with that, and the others hear of it in theirs, at the place they
had come to. So nobody waits for one that does not come, and a Stop takes effect in all of them between the same two
exchanges.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, get_args

import torch
from torch import Tensor, distributed

from sonosco_like.errors import ConfigError, DataError, MissingPackageError, SonoscoError, UsageError
from sonosco_like.events import CallbackError, Scope, Stop

MOST_NUMBERS = 61
_MISTAKES = (UsageError, ConfigError, DataError, MissingPackageError)
_TROUBLE, _PLACE, _SQUARE, _NUMBERS = range(4)
_PLACES = 99991  # a prime, so that the sum of its squares over all processes is exact in float64

# What was exchanged last. A thread of gloo lets go of a tensor a moment after we have it back, and needs for that the
# interpreter: a process that is just ending would be aborted (pytorch pull request 179291). So we let go last.
exchanged: deque[Tensor] = deque(maxlen=32)
_LONGEST_WAIT = 10.0  # seconds


class ProcessFailedError(SonoscoError):
    """Another process failed; says which, and with what."""

    exit_code = 1


class ProcessLostError(SonoscoError):
    """Another process is gone, or does not answer."""

    exit_code = 1


class Agreement:
    """The roll calls of one process among `size`.

    `limit` is how long it waits for the others; without one it waits until they come, or their processes end.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.limit: timedelta | None = None
        self.is_over = False  # all have heard of a failure, or have ended well: there is nothing more to tell
        self.is_lost = False  # one of them is gone: there is nothing more to exchange

    def meet(self, place: str, numbers: Sequence[float] = ()) -> list[float]:
        """The sums of numbers over all processes, once all are at this place; raises what ends the way of one."""
        code = float(zlib.crc32(place.encode()) % _PLACES)
        sums = self._sum([0.0, code, code * code, *numbers])
        if sums[_TROUBLE]:
            raise self._heard(None)
        if sums[_SQUARE] * self.size != sums[_PLACE] ** 2:
            places = ", ".join(f"process {rank} at {name!r}" for rank, name in enumerate(self.exchange(place)))
            raise UsageError(
                f"The processes went different ways: {places}. A callback that listens in some of them only (`ranks`) "
                f"must not call what all of them do together, such as evaluate()."
            )
        return sums[_NUMBERS : _NUMBERS + len(numbers)]

    def tell(self, trouble: Exception | None) -> Exception:
        """Answer the roll call with a Stop or a failure of this process; returns what all agree on instead."""
        try:
            self._sum([1.0])
            return self._heard(trouble)
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
            raise ProcessLostError("Another process of this run has ended; what it said tells why.")
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
            raise ProcessLostError(f"Another process of this run has ended{late}; what it said tells why.") from error

    def _heard(self, own: Exception | None) -> Exception:
        """What all processes agree on when some of them are in trouble: the first failure, else the widest Stop."""
        told = self.exchange(_as_data(own))
        failed = [rank for rank, data in enumerate(told) if data and "failure" in data]
        self.is_over = bool(failed)
        if failed:
            return own if self.rank in failed and own is not None else _failure(failed[0], told[failed[0]])
        scopes = get_args(Scope)
        stops = [data for data in told if data]
        widest = max(stops, key=lambda data: scopes.index(data["scope"]))
        agreed = own if isinstance(own, Stop) and own.scope == widest["scope"] else Stop(**widest)
        agreed.agreed = True
        return agreed


def let_go() -> None:
    """Return when no thread of gloo holds any more what was exchanged last; before the interpreter ends."""
    deadline = time.monotonic() + _LONGEST_WAIT
    while exchanged:
        tensor = exchanged.popleft()
        while sys.getrefcount(tensor) > 2 and time.monotonic() < deadline:  # held by this name and the call alone
            time.sleep(0.001)


def is_mistake(error: BaseException) -> bool:
    """Whether the user asked for what cannot be; a callback may have been the one to find out."""
    found = error.__cause__ if isinstance(error, CallbackError) else error
    return isinstance(found, _MISTAKES)


def _as_data(trouble: Exception | None) -> dict[str, Any] | None:
    if trouble is None:
        return None
    if isinstance(trouble, Stop):
        return {"reason": trouble.reason, "scope": trouble.scope}
    said = str(trouble) if isinstance(trouble, SonoscoError) else f"{type(trouble).__name__}: {trouble}"
    return {"failure": said, "mistake": is_mistake(trouble)}


def _failure(rank: int, data: dict[str, Any]) -> SonoscoError:
    kind = UsageError if data["mistake"] else ProcessFailedError
    return kind(f"Process {rank} failed: {data['failure']}")

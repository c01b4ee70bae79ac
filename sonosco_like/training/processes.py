"""The processes that train one model together, each on its shard of the data; one process alone has no cost."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn

from sonosco_like.errors import NetworkError, UsageError
from sonosco_like.events import Duration, Stop
from sonosco_like.training.consensus import MOST_NUMBERS, Consensus, exchanged, release_exchanged
from sonosco_like.training.foreign_loader import name_of
from sonosco_like.training.sharing import Sharing, spread
from sonosco_like.training.torch_loader import is_dealt

# Between exchanges the processes wait for one another at roll calls, where one that ended is noticed at once: a first
# process that makes a corpus for hours, or decodes a test set, is no reason to end the run.
_NO_LIMIT = timedelta(days=365)


class Processes:
    """This process among those that train together. Their number is in the environment, set by `torchrun`."""

    def __init__(self) -> None:
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not distributed.is_initialized():
            _begin(self.local_rank)
        together = distributed.is_available() and distributed.is_initialized()
        self.size = distributed.get_world_size() if together else 1
        self.rank = distributed.get_rank() if together else 0
        self._consensus = Consensus(self.rank, self.size)
        self._sharing = Sharing()

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and prints messages."""
        return self.rank == 0

    # What happened in one of them

    def begin(self, limit: str | None = None) -> None:
        """Begin to work together; a process waits for the others no longer than `limit`, such as 30min."""
        self._consensus.is_over, self._consensus.limit = False, limit_of(limit)

    def end(self) -> None:
        """End the training: a later failure is not reported to the other processes."""
        self._consensus.is_over = True

    def barrier(self, place: str, *numbers: float) -> list[float]:
        """The sums of some numbers over all processes, once all are at this place in the training.

        Raises the Stop, or an error about the failure, of a process that does not come here because of it.
        """
        return list(numbers) if self.size == 1 else self._consensus.barrier(place, numbers)

    def agree_on(self, stop: Stop | None) -> Stop:
        """The Stop that all processes take instead of the own one; raises if another of them failed."""
        if stop is not None and (self.size == 1 or stop.agreed):
            return stop
        agreed = self._consensus.report(stop)
        if isinstance(agreed, Stop):
            return agreed
        raise agreed

    def report_failure(self, error: Exception) -> None:
        """Report the failure of this process to the others, which raise it at their next exchange."""
        if self.size > 1 and not self._consensus.is_over:
            self._consensus.report(error)

    @contextmanager
    def reporting_failures(self) -> Iterator[None]:
        """Report a failure inside this block to the other processes, which would otherwise wait for this one."""
        try:
            yield
        except Exception as error:
            self.report_failure(error)
            raise

    @property
    def are_complete(self) -> bool:
        """Whether all processes still take part in exchanges."""
        return self.size == 1 or not self._consensus.is_lost

    # What they exchange

    def sum(self, tensor: Tensor) -> None:
        """Add up a tensor over all processes, in place."""
        if self.size == 1:
            return
        if tensor.numel() <= MOST_NUMBERS:
            sums = self.barrier("sum", *tensor.flatten().tolist())
            tensor.copy_(torch.tensor(sums, dtype=torch.float64).reshape(tensor.shape))
        else:
            self.barrier("large sum")
            exchanged.append(tensor)
            distributed.all_reduce(tensor)

    def total(self, number: Tensor | float) -> Tensor | float:
        """The sum of a number over all processes; a number on the GPU stays there, so that nothing waits for it."""
        if self.size == 1:
            return number
        if not isinstance(number, Tensor) or not number.is_cuda:
            return self.barrier("total", float(number))[0]
        self.barrier("total on GPU")
        summed = number.to(torch.float64, copy=True)
        distributed.all_reduce(summed)
        return summed

    def any(self, *flags: bool) -> list[bool]:
        """For each flag, whether any process has it set."""
        return [bool(count) for count in self.barrier("any", *map(float, flags))]

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.barrier("wait")

    def gather(self, content: Any) -> list[Any]:
        """The content, plain data that JSON can hold, of every process in the order of their ranks."""
        if self.size == 1:
            return [content]
        self.barrier("gather")
        return self._consensus.exchange(content)

    def from_first(self, content: Any) -> Any:
        """The content of the first process, plain data that JSON can hold, in every process."""
        return self.gather(content)[0]

    # What they share of a model

    def broadcast_model(self, model: nn.Module) -> None:
        """Give every process the weights and statistics of the first one."""
        if self.size > 1:
            self.barrier("share state")
            spread(model)

    def all_reduce_gradients(self, model: nn.Module) -> None:
        """Average the gradients over all processes, and take the buffers of the first one, such as running statistics.

        How much each process counts is in its loss (`Optimization`). This is done after every batch, also where several
        share an optimizer step, so that at the end of a batch all processes hold the same, and the checkpoint that the
        first one writes is that of all.
        """
        if self.size == 1:
            return
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        unused = any(parameter.grad is None for parameter in parameters)
        (some_unused,) = self.barrier("gradients", float(unused))
        self._sharing.average_gradients(parameters, self.size, some_unused=bool(some_unused))
        self._sharing.spread_buffers(model)

    def broadcast_buffers(self, model: nn.Module) -> None:
        """Give every process the buffers of the first one, also if a batch was not trained on."""
        if self.size > 1:
            self.barrier("buffers")
            self._sharing.spread_buffers(model)

    def sync_batch_norm(self, model: nn.Module) -> nn.Module:
        """Let batch normalisation treat the batches of all processes as one; torch's own can do this on GPUs only."""
        if self.size == 1:
            return model
        for module in model.modules():
            if callable(sync := getattr(module, "sync_batch_norm", None)):
                sync()
        if not torch.cuda.is_available():
            return model
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        return converted

    def offset_seed(self) -> None:
        """Give each process another seed, so that dropout differs between them."""
        if self.rank:
            torch.manual_seed((torch.initial_seed() + self.rank) % 2**63)

    def shard(self, loader: Any) -> None:
        """Let a loader give only the shard of this process."""
        if self.size == 1 or loader is None:
            return
        dealing: Any = loader if hasattr(loader, "distribute") else getattr(loader, "dataset", None)
        if hasattr(dealing, "distribute"):
            dealing.distribute(self.rank, self.size)
        elif not is_dealt(loader):
            raise UsageError(
                f"{name_of(loader)} would give each of the {self.size} processes the same batches: a loader for "
                f"several processes, or its dataset, needs a method distribute(rank, world_size), or a sampler such as "
                f"torch's DistributedSampler."
            )


def limit_of(text: str | None) -> timedelta | None:
    """The longest time that processes wait for one another. Raises UsageError if the text is not a time."""
    duration = Duration.parse(text) if text is not None else None
    if duration is not None and duration.unit != "s":
        raise UsageError(f"`process_timeout` is a time such as 30min, got {text!r}.")
    return None if duration is None else timedelta(seconds=duration.value)


def _join_group(backend: str) -> None:
    """Connect the processes. Raises NetworkError if they cannot be connected."""
    try:
        distributed.init_process_group(backend)
    except (distributed.DistError, ConnectionError, TimeoutError) as error:
        place = ":".join(os.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))
        raise NetworkError(
            f"The processes that train together cannot reach each other at {place}: {str(error).splitlines()[0]}. "
            "Nothing was trained or changed; see that the first machine is reachable, and give the same command again."
        ) from error


def _begin(local_rank: int) -> None:
    """Join the group that torchrun set up: gloo for what is on the CPU, NCCL for what is on GPUs, one for each."""
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
    _join_group(backend)
    distributed.distributed_c10d._set_pg_timeout(_NO_LIMIT)
    atexit.register(_leave)


def _leave() -> None:
    release_exchanged()
    distributed.destroy_process_group()

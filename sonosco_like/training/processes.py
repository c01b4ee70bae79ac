"""The processes that train one model together, each on its shard of the data; one process alone has no cost."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn

from sonosco_like.errors import NetworkError, UsageError, as_sentence
from sonosco_like.events import Duration, Stop
from sonosco_like.training.exchange import (
    MOST_NUMBERS,
    Consensus,
    Sharing,
    broadcast_weights,
    exchanged,
    from_plain,
    release_exchanged,
    to_plain,
)
from sonosco_like.training.foreign_loader import name_of
from sonosco_like.training.randomness import generator_states, restore_generators
from sonosco_like.training.torch_loader import has_distributed_sampler

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
            broadcast_weights(model)

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
        self._sharing.broadcast_buffers(model)

    def broadcast_buffers(self, model: nn.Module) -> None:
        """Give every process the buffers of the first one, also if a batch was not trained on."""
        if self.size > 1:
            self.barrier("buffers")
            self._sharing.broadcast_buffers(model)

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
        target: Any = loader if hasattr(loader, "distribute") else getattr(loader, "dataset", None)
        if hasattr(target, "distribute"):
            target.distribute(self.rank, self.size)
        elif not has_distributed_sampler(loader):
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
        reason = as_sentence(str(error).splitlines()[0])
        raise NetworkError(
            f"The processes that train together cannot reach each other at {place}: {reason} "
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
    atexit.register(_leave_group)


def _leave_group() -> None:
    release_exchanged()
    distributed.destroy_process_group()


logger = logging.getLogger(__name__)


class RankStates:
    """Gathers the states of all processes in the checkpoint of the first one, and gives them back on a resume.

    The same number of processes goes on bit for bit. Another number goes on with the utterances of the epoch that
    no process has seen, if the loader knows them (`load_shares`).
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._others: list[dict[str, Any]] = []  # generators of the processes but the first, at the last gathering
        self._places: list[dict[str, Any]] | None = None  # states of the loader of each process, then
        self._restored: dict[str, Any] | None = None
        self._saved_by = 0  # processes that wrote what was loaded, until the loader has been put in its place

    def gather(self, loader: Any) -> None:
        """Gather the states of the processes, before the first one saves them."""
        if self._processes.size == 1:
            return
        own = {"generators": to_plain(generator_states()), "place": _place_of(loader)}
        found = self._processes.gather(own)
        self._others = [from_plain(each["generators"]) for each in found[1:]]
        places = [from_plain(each["place"]) for each in found]
        self._places = places if all(place is not None for place in places) else None

    def state_dict(self) -> dict[str, Any]:
        """The generators of all processes; with several processes, also their positions in the data."""
        places = {"places": self._places} if self._places is not None else {}
        return {"generators": [generator_states(), *self._others], **places}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Restore the generators of this process; its loader follows when it is ready."""
        generators, rank = content["generators"], self._processes.rank
        self._saved_by, self._places = len(generators), content.get("places")
        restore_generators(generators[rank if rank < len(generators) else 0])
        if rank >= len(generators):  # a newcomer must not draw what the first one draws
            torch.manual_seed((int(torch.randint(2**62, ())) + rank) % 2**63)
        self._restored = generator_states()

    def restore_generators(self) -> None:
        """Restore the loaded states of the generators again, before the first batch."""
        restored, self._restored = self._restored, None
        if restored is not None:
            restore_generators(restored)

    def resume(self, loader: Any) -> None:
        """Move the loader of this process to the saved position."""
        before, self._saved_by = self._saved_by, 0
        places, self._places = self._places, None
        if before == self._processes.size:
            if places is not None:
                loader.load_state_dict(places[self._processes.rank])
        elif before:
            if places is None and hasattr(loader, "state_dict"):
                places = [loader.state_dict()] * before
            how = _go_on(loader, places or [], self._processes.size)
            if self._processes.is_first:
                logger.warning(
                    "This was saved by %d processes and is continued by %d: %s. The run is not the one it would have "
                    "been.", before, self._processes.size, how,
                )  # fmt: skip


def _place_of(loader: Any) -> Any:
    if not (hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")):
        return None
    try:
        return to_plain(loader.state_dict())
    except UsageError as error:
        logger.warning("The place of %s is saved for the first process only: %s", type(loader).__name__, error)
        return None


def _go_on(loader: Any, places: list[dict[str, Any]], size: int) -> str:
    """Continue the epoch with another number of processes; returns a sentence on how exact that is."""
    if hasattr(loader, "load_shares"):
        loader.load_shares(places)
        return "the epoch goes on with the utterances that none of them had seen"
    positions = [place["position"] for place in places if isinstance(place.get("position"), int)]
    if hasattr(loader, "seek") and places and len(positions) == len(places):
        loader.seek(sum(positions) // size)
        return "the epoch goes on after as many batches in all"
    return f"{type(loader).__name__} goes on after as many batches of each process, so data is repeated or left out"

"""The processes that train one model together, each on its share of the data; alone, everything here costs nothing."""

from __future__ import annotations

import atexit
import json
import os
from collections import deque
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from sonosco_like.errors import NetworkError, UsageError
from sonosco_like.models.normalization import RunningMoments
from sonosco_like.training.foreign_loader import name_of
from sonosco_like.training.torch_loader import is_dealt

# What was exchanged last. A thread of gloo lets go of a tensor a moment after we have it back; if it is the last to do
# so it needs the interpreter, and a process that is just ending would be aborted (pytorch pull request 179291).
_exchanged: deque[Tensor] = deque(maxlen=16)


def _meet() -> None:
    """Have the processes find each other. Raises NetworkError if they cannot."""
    try:
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    except (distributed.DistError, ConnectionError, TimeoutError) as error:
        place = ":".join(os.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))
        raise NetworkError(
            f"The processes that train together cannot reach each other at {place}: {str(error).splitlines()[0]}. "
            "Nothing was trained or changed; see that the first machine is reachable, and give the same command again."
        ) from error


class Processes:
    """This process among those that train together. `torchrun` says in the environment how many there are."""

    def __init__(self) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not distributed.is_initialized():
            _meet()
            atexit.register(distributed.destroy_process_group)
        together = distributed.is_available() and distributed.is_initialized()
        self.size = distributed.get_world_size() if together else 1
        self.rank = distributed.get_rank() if together else 0
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank))

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and speaks to the user."""
        return self.rank == 0

    def device(self, wanted: torch.device | None) -> torch.device:
        """The device of this process: what is wanted, else its own GPU if there is one."""
        if wanted is not None:
            return wanted
        return torch.device("cuda", self.local_rank) if torch.cuda.is_available() else torch.device("cpu")

    def share(self, model: nn.Module, network: nn.Module) -> nn.Module:
        """A network whose gradients are averaged over all processes as they are computed.

        How much each process counts is in its loss (`Optimization`). Gradients are averaged after every batch, also
        where several share an optimizer step: so that a checkpoint between them, which only the first process writes,
        holds what every process has.
        """
        self._learning = _learning(model)
        return DistributedDataParallel(network) if self.size > 1 and any(self._learning) else network

    def share_again(self, model: nn.Module, network: nn.Module, shared: nn.Module) -> nn.Module:
        """The shared network, made anew if other parameters learn now: each has to know which ones do."""
        return shared if self._learning == _learning(model) else self.share(model, network)

    def share_statistics(self, model: nn.Module) -> nn.Module:
        """Have batch normalisation see the batches of all processes as one; torch's own can do so on GPUs only."""
        if self.size == 1:
            return model
        for module in model.modules():
            if isinstance(module, RunningMoments):
                module.shared = True
        if not torch.cuda.is_available():
            return model
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        return converted

    def share_buffers(self, model: nn.Module) -> None:
        """Have every process hold the first one's buffers, such as the statistics of batch normalisation."""
        if self.size > 1:
            for buffer in model.buffers():
                distributed.broadcast(buffer, 0)

    def draw_apart(self) -> None:
        """Have the generator of each process begin elsewhere, so that dropout differs among them."""
        if self.rank:
            torch.manual_seed((torch.initial_seed() + self.rank) % 2**63)

    def deal(self, loader: Any) -> None:
        """Let a loader hand out only this process's share."""
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

    def sum(self, tensor: Tensor) -> None:
        """Add up a tensor over all processes, in place."""
        if self.size > 1:
            _exchanged.append(tensor)
            distributed.all_reduce(tensor)

    def total(self, number: Tensor | float) -> Tensor | float:
        """The sum of a number over all processes; on the device if they exchange it there, which nobody waits for."""
        if self.size == 1:
            return number
        summed = torch.as_tensor(number, dtype=torch.float64, device=self._device).clone()
        self.sum(summed)
        return summed.item() if summed.device.type == "cpu" else summed

    def any(self, *flags: bool) -> list[bool]:
        """For each flag, whether any process has it set."""
        if self.size == 1:
            return list(flags)
        counts = torch.tensor([int(flag) for flag in flags], device=self._device)
        self.sum(counts)
        return [bool(count) for count in counts.tolist()]

    def wait(self) -> None:
        """Go on when all processes have come here."""
        if self.size > 1:
            distributed.barrier()

    def gather(self, content: Any) -> list[Any]:
        """The content, plain data that JSON can hold, of every process in the order of their ranks."""
        if self.size == 1:
            return [content]
        text = json.dumps(content).encode()
        length = torch.tensor([len(text)], device=self._device)
        distributed.all_reduce(length, op=distributed.ReduceOp.MAX)
        padded = torch.full((int(length),), ord(" "), dtype=torch.uint8)
        padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        found = [torch.empty_like(padded, device=self._device) for _ in range(self.size)]
        sent = padded.to(self._device)
        _exchanged.extend([length, sent, *found])
        distributed.all_gather(found, sent)
        return [json.loads(bytes(each.tolist())) for each in found]

    def from_first(self, content: Any) -> Any:
        """The content of the first process, plain data that JSON can hold, in every process."""
        return self.gather(content)[0]

    @property
    def _device(self) -> torch.device:
        return torch.device("cuda", self.local_rank) if distributed.get_backend() == "nccl" else torch.device("cpu")


def _learning(model: nn.Module) -> list[bool]:
    return [parameter.requires_grad for parameter in model.parameters()]

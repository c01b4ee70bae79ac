"""Gradients and buffers of a model over all processes, in few and large messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, distributed, nn

from sonosco_like.training.consensus import exchanged

Batches = Sequence[Any]


def deal(batches: Batches, rank: int, world_size: int, divisible: bool, even: bool) -> list[Any]:
    """The batches of one of `world_size` processes: one of each round.

    What does not fill a round is divided anew among all, if batches are lists of examples and so `divisible`. Is that
    impossible, it is left out where all must have equally many batches (`even`), and else given to the first processes.
    """
    full = len(batches) // world_size * world_size
    rounds, rest = list(batches[:full]), list(batches[full:])
    if rest and divisible:
        rounds, rest = _divided(rounds, rest, world_size)
    return rounds[rank::world_size] + ([] if even else rest[rank : rank + 1])


def left_out(batches: Batches, world_size: int, divisible: bool) -> int:
    """How many examples, or batches that cannot be divided, no process gets where all must have equally many."""
    dealt = [deal(batches, rank, world_size, divisible, even=True) for rank in range(world_size)]
    if not divisible:
        return len(batches) - sum(map(len, dealt))
    return sum(map(len, batches)) - sum(len(batch) for share in dealt for batch in share)


def _divided(rounds: list[Any], rest: list[Any], world_size: int) -> tuple[list[Any], list[Any]]:
    """One more round of what is left, or two instead of the last full one if it is less than one for each process."""
    examples = [example for batch in rest for example in batch]
    if len(examples) >= world_size:
        return [*rounds, *_split(examples, world_size)], []
    examples = [example for batch in (*rounds[-world_size:], examples) for example in batch]
    if not rounds or len(examples) < 2 * world_size:
        return rounds, rest
    return [*rounds[:-world_size], *_split(examples, 2 * world_size)], []


def _split(examples: list[Any], parts: int) -> list[list[Any]]:
    """So many parts of the same length, or one less."""
    share, more = divmod(len(examples), parts)
    edges = [part * share + min(part, more) for part in range(parts + 1)]
    return [examples[begin:end] for begin, end in pairwise(edges)]


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
    def spread_buffers(self, model: nn.Module) -> None:
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
def spread(model: nn.Module) -> None:
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

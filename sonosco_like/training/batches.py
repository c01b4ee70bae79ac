"""Batches of any kind: our own `Batch`, or an (inputs, targets) pair."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.loss import _Loss as _TorchLoss

from sonosco_like.errors import UsageError
from sonosco_like.records import Batch
from sonosco_like.training.foreign_loader import close_batches, name_of
from sonosco_like.training.position import Position
from sonosco_like.training.processes import Processes

logger = logging.getLogger(__name__)

_OF_CLASSES = (functional.cross_entropy, functional.nll_loss)


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch with its tensors on a device; other values, and everything if the device is the CPU, stay as they are."""
    if device.type == "cpu":  # where batches come from
        return batch
    if isinstance(batch, (Tensor, Batch)):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, (list, tuple)):
        parts = [to_device(part, device) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if isinstance(batch, dict):
        return {key: to_device(part, device) for key, part in batch.items()}
    return batch.to(device) if callable(getattr(batch, "to", None)) else batch


def inputs_of(batch: Any) -> Any:
    """The inputs of a batch, for measuring and describing: a whole Batch, otherwise the first part."""
    return batch[0] if isinstance(batch, (list, tuple)) and batch else batch


def targets_of(batch: Any) -> Any:
    """The targets of a batch: a whole Batch, otherwise the last part."""
    return batch[-1] if isinstance(batch, (list, tuple)) and batch else batch


def weighing_of(loss: Any) -> Callable[[Any], Tensor | float]:
    """A function that gives what the mean loss of a batch was taken over.

    That is what the loss declares with a method `weight`, or what torch's own loss counts, else the examples.
    """
    declared = getattr(loss, "weight", None)
    if callable(declared):
        return cast(Callable[[Any], Tensor | float], declared)
    if not (isinstance(loss, _TorchLoss) or getattr(loss, "__module__", None) == functional.__name__):
        return _number_of_examples
    of_classes = isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss)) or loss in _OF_CLASSES
    return partial(_weight_of_torch, loss, of_classes)


def _weight_of_torch(loss: Any, of_classes: bool, batch: Any) -> Tensor | float:
    """The number of values over which a loss of torch averages: targets of classes that count, else all numbers."""
    targets = batch[-1] if isinstance(batch, (list, tuple)) and batch else batch
    if not isinstance(targets, Tensor) or targets.dim() == 0:
        return _number_of_examples(batch)
    if not of_classes or targets.is_floating_point():
        return float(targets.numel())
    counted = targets != getattr(loss, "ignore_index", -100)
    of_each = getattr(loss, "weight", None)
    return counted.sum() if of_each is None else of_each[targets[counted]].sum()


def _number_of_examples(batch: Any) -> float:
    targets = targets_of(batch)
    if isinstance(targets, (list, tuple, dict)) and not _is_one_for_each(targets, inputs_of(batch)):
        first = _first_tensor(targets)
        targets = targets if first is None else first
    if isinstance(targets, Tensor) and targets.dim() == 0:
        return 1.0
    return float(len(targets)) if hasattr(targets, "__len__") else 1.0


def _is_one_for_each(targets: Any, inputs: Any) -> bool:
    """Whether targets are a list with a part for each example, not parts that each cover all examples."""
    return isinstance(inputs, Tensor) and inputs.dim() > 0 and len(inputs) == len(targets)


def _first_tensor(part: Any) -> Tensor | None:
    if isinstance(part, Tensor):
        return part
    parts: Iterable[Any] = part.values() if isinstance(part, dict) else part if isinstance(part, (list, tuple)) else ()
    return next((found for each in parts if (found := _first_tensor(each)) is not None), None)


@contextmanager
def memory_errors_as_usage_errors(batch: Any) -> Iterator[None]:
    """Raise UsageError with the shape of a batch that does not fit into memory, and with the remedy."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise too_large(batch) from error


def too_large(batch: Any) -> UsageError:
    """What to raise for a batch that does not fit into memory."""
    return UsageError(f"Out of memory on a batch with {describe_batch(batch)}. Make batches smaller.")


@contextmanager
def closed(batches: Iterator[Any]) -> Iterator[Iterator[Any]]:
    """A pass over a loader that is closed afterwards, so that its workers end at once."""
    try:
        yield batches
    finally:
        close_batches(batches)


class EpochBatches:
    """The remaining batches of an epoch. All processes are at the same batch, and `position` is updated."""

    def __init__(self, batches: Iterator[Any], loader: Any, position: Position, processes: Processes) -> None:
        self._batches, self._loader = batches, loader
        self._position, self._processes = position, processes

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        if batch is None:  # which would end the epoch
            raise UsageError(
                "A data loader gave None instead of a batch; leave out what cannot be used, or raise an error."
            )
        return batch

    def __enter__(self) -> EpochBatches:
        return self

    def __exit__(self, *error: object) -> None:
        close_batches(self._batches)

    def agree(self, batch: Any) -> Any:
        """The batch, or None at the end of the epoch. If one process has no more batches, all end the epoch."""
        position = self._position
        if self._processes.size > 1:
            (ended,) = self._processes.barrier("batch", float(batch is None))
            if ended and batch is not None:
                logger.warning("Another process has no more batches in epoch %d: the rest is left.", position.epoch)
            batch = None if ended else batch
        if batch is not None:
            if position.phase != "training":  # a hook gave it
                position.receive_batch()
            return batch
        if position.batches_done == 0 and not position.is_in_batch:
            self._refuse_empty()
        position.end_data()
        return None

    def is_spent(self) -> bool:
        """Whether the batch that a Stop ended is counted. With several processes, a whole round is counted."""
        position = self._position
        if self._processes.size > 1:
            has_batch = position.phase in ("training", "counted", "complete")
            if self._processes.any(has_batch)[0] and not has_batch and next(self._batches, None) is not None:
                position.receive_batch()
        return position.is_in_batch

    def _refuse_empty(self) -> None:
        """Raise if an epoch without a batch had no data; a hook may have removed the batches on purpose."""
        epoch = self._position.epoch
        self._position.await_batch()
        if next(self._batches, None) is not None:
            return
        if epoch > 0 or isinstance(getattr(self._loader, "loader", self._loader), Iterator):
            remedy = "Give something that can be iterated more than once, such as a list or a DataLoader."
        else:
            remedy = "The data is empty."
        name = name_of(self._loader)
        raise UsageError(f"The training data, {name}, gave not one batch in epoch {epoch}. {remedy}")


def describe_batch(batch: Any) -> str:
    """Shape and utterances of a batch, for messages."""
    if isinstance(batch, Batch):
        shape = " x ".join(map(str, batch.features_BTF.shape))
        ids = ", ".join(batch.ids[:8]) + (" ..." if len(batch.ids) > 8 else "")
        return f"features of {shape}" + (f", utterances {ids}" if ids else "")
    inputs = inputs_of(batch)
    return f"inputs of {' x '.join(map(str, inputs.shape))}" if isinstance(inputs, Tensor) else type(batch).__name__

"""Batches of any kind: how they reach the device, the model and the loss, and how many examples they count for.

`Batch` and other objects are handed over whole. `(inputs, targets)` is a pair; inputs that are a tuple become several
arguments if the model takes them. Of `(a, b, targets)` all but the last are inputs, if the model takes just as many. A
mapping is handed over by the names of arguments, or whole where those are not its keys.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
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
                logger.warning(
                    "Another process has no more batches in epoch %d, so the rest of the epoch is left out.",
                    position.epoch + 1,
                )
            batch = None if ended else batch
        if batch is not None:
            if position.phase != "training":  # a hook gave it
                position.receive_batch()
            return batch
        if position.batches_done == 0 and not position.is_in_batch:
            self._refuse_empty()
        position.end_data()
        return None

    def is_spent(self, is_left_out: bool) -> bool:
        """Whether the batch that a Stop ended is counted. With several processes, a whole round is counted.

        A batch that `is_left_out` is counted even if the Stop came before it was fetched: it is fetched now. Otherwise
        a callback that stops each batch at that moment would wait for the same batch for ever.
        """
        position = self._position
        has_batch = position.phase in ("training", "counted", "complete")
        is_counted = self._processes.any(has_batch)[0] or is_left_out
        if is_counted and not has_batch and next(self._batches, None) is not None:
            position.receive_batch()
        if is_left_out and self._processes.any(position.phase in ("fetching", "read"))[0]:
            position.end_data()
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
        raise UsageError(f"The training data, {name}, gave no batch in epoch {epoch + 1}. {remedy}")


def describe_batch(batch: Any) -> str:
    """Shape and utterances of a batch, for messages."""
    if isinstance(batch, Batch):
        shape = " x ".join(map(str, batch.features_BTF.shape))
        ids = ", ".join(batch.ids[:8]) + (" ..." if len(batch.ids) > 8 else "")
        return f"features of {shape}" + (f", utterances {ids}" if ids else "")
    inputs = inputs_of(batch)
    return f"inputs of {' x '.join(map(str, inputs.shape))}" if isinstance(inputs, Tensor) else type(batch).__name__


_REMEDY = "or override `forward(batch)` and `compute_loss(output, batch)` in a class of your own from ModelTrainer"
_PARTS = (list, tuple)  # forms of a batch whose last part is the target
_warned: set[tuple[str, ...]] = set()


def output_of(network: Callable[..., Any], model: nn.Module, batch: Any) -> Any:
    """The output of a network for a batch; the signature of `model`, which it was made from, decides on arguments."""
    if isinstance(batch, _PARTS) and len(batch) == 2 and isinstance(batch[0], Tensor):
        output = network(batch[0])
    elif isinstance(batch, Tensor) or not isinstance(batch, (*_PARTS, Mapping, type(None))):
        output = network(batch)
    else:
        arguments, named = _inputs(model, batch)
        output = network(*arguments, **named)
    if output is None:
        raise UsageError(f"{type(model).__name__}.forward returned None: does it lack a `return`?")
    return output


def loss_of(loss: Callable[..., Any], output: Any, batch: Any, model: nn.Module) -> Any:
    """The loss of an output, given its batch."""
    if isinstance(batch, _PARTS):
        if len(batch) == 1:
            raise UsageError(f"A batch of one part has no targets for the loss: give (inputs, targets), {_REMEDY}.")
        return loss(output, batch[-1])
    if not isinstance(batch, Mapping):
        return loss(output, batch)
    named = _arguments(_function_of(loss), batch, skipped=1)
    if not named:
        return loss(output, batch)
    _warn_of_unused(batch, {*named, *_arguments(model.forward, batch)})
    return loss(output, **named)


def check_loss(loss: Any, learning: bool) -> None:
    """Refuse a loss that is not one number, and in training one that depends on no parameter."""
    if not isinstance(loss, Tensor):
        found = f"a {type(loss).__name__}"
    elif loss.numel() != 1:
        found = f"a tensor of {' x '.join(map(str, loss.shape))}"
    elif learning and not loss.requires_grad:
        raise UsageError(
            "The loss does not depend on any parameter that learns: all of them are frozen, or the output was detached."
        )
    else:
        return
    raise UsageError(
        f"The loss must be a tensor with one number, got {found}. Return its mean or sum; what else is worth knowing "
        f"can be logged with `trainer.log(...)` or be a metric."
    )


def _inputs(model: nn.Module, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the model, by place and by name."""
    if batch is None:
        raise UsageError(
            "A data loader gave None instead of a batch; leave out what cannot be used, or raise an error."
        )
    if isinstance(batch, Mapping):
        named = _arguments(model.forward, batch)
        return ((), named) if named else ((batch,), {})
    if len(batch) == 0:
        raise UsageError("A data loader gave an empty batch; leave it out.")
    inputs = batch[0] if len(batch) <= 2 else tuple(batch[:-1])
    if len(batch) > 2:
        _refuse_unless_taken(model, batch)
        return inputs, {}
    if isinstance(inputs, Mapping) and _binds(model.forward, (), dict(inputs)):
        return (), dict(inputs)
    takes_several = isinstance(inputs, (list, tuple)) and len(inputs) > 1 and _binds(model.forward, tuple(inputs), {})
    return (tuple(inputs), {}) if takes_several else ((inputs,), {})


def _refuse_unless_taken(model: nn.Module, batch: Any) -> None:
    required, most = _number_of_arguments(model.forward)
    if required == most == len(batch) - 1:
        return
    takes = f"{required}" if required == most else f"{required} to {most}" if most < 99 else "any number of"
    raise UsageError(
        f"A batch has {len(batch)} parts, but {type(model).__name__}.forward takes {takes} inputs, so that it cannot "
        f"be known which parts are inputs and which are targets. Give pairs, such as ((a, b), target) or (a, (b, c)), "
        f"or a dict with the names of the arguments, {_REMEDY}."
    )


def _number_of_arguments(function: Callable[..., Any]) -> tuple[int, int]:
    parameters = list(inspect.signature(function).parameters.values())
    by_place = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    required = sum(each.default is each.empty for each in by_place)
    return required, 99 if any(each.kind is each.VAR_POSITIONAL for each in parameters) else len(by_place)


def _arguments(function: Callable[..., Any], batch: Mapping[Any, Any], skipped: int = 0) -> dict[str, Any]:
    """The entries of a batch that are arguments of a function, if all are there that it requires; else none."""
    parameters = list(inspect.signature(function).parameters.values())[skipped:]
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    if any(each.default is each.empty and each.name not in batch for each in named):
        return {}
    return {each.name: batch[each.name] for each in named if each.name in batch}


def _binds(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[Any, Any]) -> bool:
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError:
        return False
    return True


def _function_of(loss: Callable[..., Any]) -> Callable[..., Any]:
    return loss.forward if isinstance(loss, nn.Module) else loss


def _warn_of_unused(batch: Mapping[Any, Any], used: set[str]) -> None:
    unused = tuple(str(key) for key in batch if key not in used)
    if unused and unused not in _warned:
        _warned.add(unused)
        logger.warning("Neither the model nor the loss takes %s of the batches.", ", ".join(unused))

"""How a model and a loss are called with a batch of any form, so that no part of it is lost.

`Batch` and other objects are handed over whole. `(inputs, targets)` is a pair; inputs that are a tuple become several
arguments if the model takes them. Of `(a, b, targets)` all but the last are inputs, if the model takes just as many. A
mapping is handed over by the names of arguments, or whole where those are not its keys.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from sonosco_like.errors import UsageError

logger = logging.getLogger(__name__)

_REMEDY = "or override `forward(batch)` and `compute_loss(output, batch)` in a class of your own from ModelTrainer"
_PARTS = (list, tuple)  # forms of a batch whose last part is the target
_told: set[tuple[str, ...]] = set()


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
    _tell_of_unused(batch, {*named, *_arguments(model.forward, batch)})
    return loss(output, **named)


def check_loss(loss: Any, learning: bool) -> None:
    """Refuse a loss that is not one number, and in training one that depends on no parameter."""
    if not isinstance(loss, Tensor):
        came = f"a {type(loss).__name__}"
    elif loss.numel() != 1:
        came = f"a tensor of {' x '.join(map(str, loss.shape))}"
    elif learning and not loss.requires_grad:
        raise UsageError(
            "The loss does not depend on any parameter that learns: all of them are frozen, or the output was detached."
        )
    else:
        return
    raise UsageError(
        f"The loss must be a tensor with one number, got {came}. Return its mean or sum; what else is worth knowing "
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
    spread = isinstance(inputs, (list, tuple)) and len(inputs) > 1 and _binds(model.forward, tuple(inputs), {})
    return (tuple(inputs), {}) if spread else ((inputs,), {})


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


def _tell_of_unused(batch: Mapping[Any, Any], used: set[str]) -> None:
    unused = tuple(str(key) for key in batch if key not in used)
    if unused and unused not in _told:
        _told.add(unused)
        logger.warning("Neither the model nor the loss takes %s of the batches.", ", ".join(unused))

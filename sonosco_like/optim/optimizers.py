"""Torch's optimizers by name: the settings that a config gives, before there are parameters to optimize.

The fields and defaults of each record are those of torch, and a test compares them. `groups` and `layer_decay` are ours
(see `optim.groups`). Arguments that only choose torch's implementation (`foreach`, `capturable`, `differentiable`) are
left to torch.
"""

from __future__ import annotations

import dataclasses
from abc import ABC
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from sonosco_like.errors import UsageError
from sonosco_like.optim.groups import ParameterGroup, split_by_depth, split_by_pattern
from sonosco_like.serialization import serializable

_OURS = ("groups", "layer_decay")


@serializable
class Optimizer(ABC):
    """The settings of an optimizer; `build(parameters)` makes the torch optimizer of the same name.

    `groups` gives other settings to the parameters whose names match a pattern; the first pattern that matches decides.
    With `layer_decay`, such as 0.9, each layer of the encoder learns with a rate that much smaller than the layer after
    it, what is before the layers with the smallest, and what is behind them with the full rate. A group with a rate of
    its own keeps it.
    """

    groups: list[ParameterGroup] = dataclasses.field(default_factory=list)
    layer_decay: float | None = None

    def __post_init__(self) -> None:
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            raise UsageError(f"`layer_decay` must be above 0 and at most 1, such as 0.9; got {self.layer_decay}.")
        known = self._settings()
        for group in self.groups:
            for name in group.settings():
                if name not in known:
                    raise UsageError(
                        f"The group {group.pattern!r} sets `{name}`, which {type(self).__name__} does not have. "
                        f"It has {', '.join(known)}."
                    )

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        """Make the optimizer for these parameters: plain ones, (name, parameter) pairs, or torch's parameter groups.

        Raises UsageError if there are `groups` or a `layer_decay` but no names, for a pattern that matches no name, for
        a model without layers, and for a value that torch refuses.
        """
        found = list(parameters)
        named = bool(found) and all(isinstance(each, tuple) for each in found)
        if not named and (self.groups or self.layer_decay is not None):
            what = "`groups` need" if self.groups else "`layer_decay` needs"
            raise UsageError(f"{what} the names of the parameters: call build(model.named_parameters()).")
        if named:
            found = self._split(found)
        name = type(self).__name__
        with torch_errors_as_usage_errors(f"The optimizer {name}"):
            optimizer: torch.optim.Optimizer = getattr(torch.optim, name)(found, **self._settings())
        return optimizer

    def _split(self, named: list[tuple[str, Any]]) -> list[Any]:
        """The parameters, or torch's groups of them."""
        settings = self._settings()
        if self.layer_decay is not None:
            return split_by_depth(named, self.groups, self.layer_decay, settings["lr"])
        return split_by_pattern(named, self.groups) if self.groups else [parameter for _, parameter in named]

    def _settings(self) -> dict[str, Any]:
        fields = dataclasses.fields(self)
        return {field.name: getattr(self, field.name) for field in fields if field.name not in _OURS}


@contextmanager
def torch_errors_as_usage_errors(what: str) -> Iterator[None]:
    """Turn torch's errors about settings into UsageErrors; `what` names the object that could not be built."""
    try:
        yield
    except (ValueError, TypeError, ArithmeticError) as error:
        raise UsageError(f"{what} cannot be built from its settings: {str(error).rstrip('.')}.") from error


@serializable
class SGD(Optimizer):
    """Stochastic gradient descent, optionally with momentum."""

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    maximize: bool = False
    fused: bool | None = None


@serializable
class Adam(Optimizer):
    """Adam (Kingma and Ba 2014)."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    maximize: bool = False
    fused: bool | None = None
    decoupled_weight_decay: bool = False


@serializable
class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017)."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2
    amsgrad: bool = False
    maximize: bool = False
    fused: bool | None = None


@serializable
class Adamax(Optimizer):
    """Adam with the infinity norm."""

    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    maximize: bool = False


@serializable
class NAdam(Optimizer):
    """Adam with Nesterov momentum."""

    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum_decay: float = 4e-3
    decoupled_weight_decay: bool = False
    maximize: bool = False


@serializable
class RAdam(Optimizer):
    """Adam whose variance is rectified in the first steps."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled_weight_decay: bool = False
    maximize: bool = False


@serializable
class Adagrad(Optimizer):
    """Steps divided by the root of all squared gradients so far."""

    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10
    maximize: bool = False
    fused: bool | None = None


@serializable
class Adadelta(Optimizer):
    """Adagrad over a moving window of gradients."""

    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0
    maximize: bool = False


@serializable
class RMSprop(Optimizer):
    """Steps divided by a running root mean square of the gradients."""

    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False
    maximize: bool = False


@serializable
class Rprop(Optimizer):
    """Resilient back-propagation: uses only the signs of the gradients."""

    lr: float = 1e-2
    etas: tuple[float, float] = (0.5, 1.2)
    step_sizes: tuple[float, float] = (1e-6, 50.0)
    maximize: bool = False

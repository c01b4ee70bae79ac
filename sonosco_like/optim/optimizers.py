"""Torch's optimizers by name: what a config says of them, before there are parameters to optimize.

Fields and defaults are torch's own (a test compares them), and `groups` beside them; what concerns only torch's
implementation (`foreach`, `capturable`, `differentiable`) is left to torch.
"""

from __future__ import annotations

import dataclasses
from abc import ABC
from collections.abc import Iterable
from typing import Any

import torch

from sonosco_like.errors import UsageError
from sonosco_like.optim.groups import ParameterGroup, divided
from sonosco_like.optim.refusals import refusals_explained
from sonosco_like.serialization import serializable

_GROUPS = "groups"


@serializable
class Optimizer(ABC):
    """An optimizer to be: `build(parameters)` makes the torch optimizer of the same name.

    `groups` gives the parameters whose names fit a pattern settings of their own; the first that fits decides.
    """

    groups: list[ParameterGroup] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        known = self._settings()
        for group in self.groups:
            for name in group.settings():
                if name not in known:
                    raise UsageError(
                        f"The group {group.pattern!r} sets `{name}`, which {type(self).__name__} does not have. "
                        f"It has {', '.join(known)}."
                    )

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        """The optimizer for these parameters: plain ones, (name, parameter) pairs, or torch's parameter groups.

        Raises UsageError if there are `groups` but no names, a pattern that fits no name, or a value torch refuses.
        """
        found = list(parameters)
        named = bool(found) and all(isinstance(each, tuple) for each in found)
        if self.groups and not named:
            raise UsageError("`groups` go by names of parameters: call build(model.named_parameters()).")
        if named:
            found = divided(found, self.groups) if self.groups else [parameter for _, parameter in found]
        name = type(self).__name__
        with refusals_explained(f"The optimizer {name}"):
            made: torch.optim.Optimizer = getattr(torch.optim, name)(found, **self._settings())
        return made

    def _settings(self) -> dict[str, Any]:
        fields = dataclasses.fields(self)
        return {field.name: getattr(self, field.name) for field in fields if field.name != _GROUPS}


@serializable
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if asked for."""

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
    """Adagrad over a window, without a global learning rate."""

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
    """Resilient back-propagation: only the signs of the gradients count."""

    lr: float = 1e-2
    etas: tuple[float, float] = (0.5, 1.2)
    step_sizes: tuple[float, float] = (1e-6, 50.0)
    maximize: bool = False

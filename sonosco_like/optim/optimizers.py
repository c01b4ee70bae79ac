"""Torch's optimizers by name: the settings that a config gives, before there are parameters to optimize.

The fields and defaults of each record are those of torch, and a test compares them. `groups` is ours. Arguments that
only choose torch's implementation (`foreach`, `capturable`, `differentiable`) are left to torch.
"""

from __future__ import annotations

import dataclasses
from abc import ABC
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch

from sonosco_like.errors import UsageError, check_patterns
from sonosco_like.serialization import serializable

_GROUPS = "groups"
REST = "rest"


@serializable
class ParameterGroup:
    """Settings for the parameters whose names match `pattern`, such as `*.bias`; null means the optimizer's value."""

    pattern: str
    lr: float | None = None
    weight_decay: float | None = None
    momentum: float | None = None
    betas: tuple[float, float] | None = None
    eps: float | None = None

    def settings(self) -> dict[str, Any]:
        """The settings that differ from those of the optimizer."""
        given = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return {name: value for name, value in given if name != "pattern" and value is not None}

    @property
    def name(self) -> str:
        """The name of the group in logged curves: `encoder` for `encoder.*`."""
        return self.pattern.strip("*.") or self.pattern


@serializable
class Optimizer(ABC):
    """The settings of an optimizer; `build(parameters)` makes the torch optimizer of the same name.

    `groups` gives other settings to the parameters whose names match a pattern; the first pattern that matches decides.
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
        """Make the optimizer for these parameters: plain ones, (name, parameter) pairs, or torch's parameter groups.

        Raises UsageError if there are `groups` but no names, for a pattern that matches no name, and for a value that
        torch refuses.
        """
        found = list(parameters)
        named = bool(found) and all(isinstance(each, tuple) for each in found)
        if self.groups and not named:
            raise UsageError("`groups` need the names of the parameters: call build(model.named_parameters()).")
        if named:
            found = split_by_pattern(found, self.groups) if self.groups else [parameter for _, parameter in found]
        name = type(self).__name__
        with torch_errors_as_usage_errors(f"The optimizer {name}"):
            optimizer: torch.optim.Optimizer = getattr(torch.optim, name)(found, **self._settings())
        return optimizer

    def _settings(self) -> dict[str, Any]:
        fields = dataclasses.fields(self)
        return {field.name: getattr(self, field.name) for field in fields if field.name != _GROUPS}


def split_by_pattern(named: Sequence[tuple[str, Any]], groups: Sequence[ParameterGroup]) -> list[dict[str, Any]]:
    """Torch's parameter groups: first `rest`, the parameters that no pattern matches, then one group per pattern.

    Raises UsageError for a pattern that matches no name, or only names that an earlier pattern matches too.
    """
    found: dict[int, list[Any]] = {place: [] for place in range(-1, len(groups))}
    for name, parameter in named:
        matching = (place for place, group in enumerate(groups) if fnmatchcase(name, group.pattern))
        found[next(matching, -1)].append(parameter)
    check_patterns((group.pattern for group in groups), [name for name, _ in named])
    for place, group in enumerate(groups):
        if not found[place]:
            raise UsageError(
                f"The patterns before {group.pattern!r} match all of its parameters. Put {group.pattern!r} before them."
            )
    parts = [{"params": found[place], "name": group.name, **group.settings()} for place, group in enumerate(groups)]
    return [{"params": found[-1], "name": REST}, *parts] if found[-1] else parts


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

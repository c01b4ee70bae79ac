"""Torch's optimizers by name: the settings that a config gives, before there are parameters to optimize.

The fields and defaults of each record are those of torch, and a test compares them. `groups` and `layer_decay` are
ours. Arguments that only choose torch's implementation (`foreach`, `capturable`, `differentiable`) are left to torch.

Groups of parameters have settings of their own: by patterns of names, and by the depth of their layer. The layers are
the numbered modules of the encoder, such as `encoder.blocks.3`. If there are several lists of modules, that with the
most weights has the layers. Names are in the order in which the model was built, the way of the data."""

from __future__ import annotations

import dataclasses
import re
from abc import ABC
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch

from sonosco_like.errors import UsageError, as_sentence, check_patterns
from sonosco_like.serialization import serializable

REST = "rest"
_ENCODER = "encoder."
_NUMBERED = re.compile(r"(?P<list>(?:.*?\.)?)(?P<number>\d+)\.")  # the outermost number of a name


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


def split_by_pattern(named: Sequence[tuple[str, Any]], groups: Sequence[ParameterGroup]) -> list[dict[str, Any]]:
    """Torch's parameter groups: first `rest`, the parameters that no pattern matches, then one group per pattern.

    Raises UsageError for a pattern that matches no name, or only names that an earlier pattern matches too.
    """
    found = _assigned(named, groups)
    parts = [_group(group.name, found[place], group.settings()) for place, group in enumerate(groups)]
    return [_group(REST, found[-1], {}), *parts] if found[-1] else parts


def split_by_depth(
    named: Sequence[tuple[str, Any]], groups: Sequence[ParameterGroup], decay: float, lr: float
) -> list[dict[str, Any]]:
    """Torch's parameter groups by pattern, each one divided by depth, with rates that fall towards the input.

    A group with a rate of its own is not divided. Raises UsageError as `split_by_pattern` does, and for names without
    numbered layers.
    """
    depths = depths_of(named)
    last = max(depths.values())
    found = _assigned(named, groups)
    parts = []
    for place, group in [(-1, None), *enumerate(groups)]:
        settings = group.settings() if group is not None else {}
        name = group.name if group is not None else REST
        if "lr" in settings:
            parts.append(_group(name, found[place], settings))
            continue
        for depth in range(last, -1, -1):
            members = [pair for pair in found[place] if depths[pair[0]] == depth]
            if members:
                at_depth = {**settings, "lr": lr * decay ** (last - depth)}
                parts.append(_group(name if depth == last else f"{name}/depth_{depth}", members, at_depth))
    return parts


def depths_of(named: Sequence[tuple[str, Any]]) -> dict[str, int]:
    """The depth of each parameter: 0 before the layers of the encoder, then the number of the layer from 1 on.

    What comes after the layers, such as the output layer, has the highest depth. Raises UsageError without layers.
    """
    prefix = _ENCODER if any(name.startswith(_ENCODER) for name, _ in named) else ""
    inside = [(name, parameter) for name, parameter in named if name.startswith(prefix)]
    layers = {name: (found["list"], int(found["number"])) for name, _ in inside if (found := _NUMBERED.match(name))}
    if not layers:
        raise UsageError(
            f"`layer_decay` finds no layers: no parameter{' of the encoder' * bool(prefix)} is in a numbered module "
            "such as encoder.layers.0. Give `groups` with a `lr` each instead."
        )
    sizes: Counter[str] = Counter()
    for name, parameter in inside:
        if name in layers:
            sizes[layers[name][0]] += parameter.numel()
    chosen = sizes.most_common(1)[0][0]
    numbers = sorted({number for each, number in layers.values() if each == chosen})
    depths, depth = {}, 0
    for name, _ in inside:
        if name in layers and layers[name][0] == chosen:
            depth = numbers.index(layers[name][1]) + 1
            depths[name] = depth
        else:
            depths[name] = 0 if depth == 0 else len(numbers) + 1
    return {name: depths.get(name, len(numbers) + 1) for name, _ in named}


def _assigned(named: Sequence[tuple[str, Any]], groups: Sequence[ParameterGroup]) -> dict[int, list[tuple[str, Any]]]:
    """The named parameters of each group, by its place; -1 has those that no pattern matches."""
    found: dict[int, list[tuple[str, Any]]] = {place: [] for place in range(-1, len(groups))}
    for name, parameter in named:
        matching = (place for place, group in enumerate(groups) if fnmatchcase(name, group.pattern))
        found[next(matching, -1)].append((name, parameter))
    check_patterns((group.pattern for group in groups), [name for name, _ in named])
    for place, group in enumerate(groups):
        if not found[place]:
            raise UsageError(
                f"The patterns before {group.pattern!r} match all of its parameters. Put {group.pattern!r} before them."
            )
    return found


def _group(name: str, members: Sequence[tuple[str, Any]], settings: dict[str, Any]) -> dict[str, Any]:
    return {"params": [parameter for _, parameter in members], "name": name, **settings}


_OURS = ("groups", "layer_decay")


@serializable
class Optimizer(ABC):
    """The settings of an optimizer; `build(parameters)` makes the torch optimizer of the same name.

    `groups` gives other settings to the parameters whose names match a pattern; the first pattern that matches decides.
    With `layer_decay`, such as 0.9, the rate of each layer of the encoder is 0.9 times that of the next layer. Parts
    before the layers have the smallest rate, parts after them the full rate. A group with a rate of its own keeps it.
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
        raise UsageError(f"{what} cannot be built from its settings: {as_sentence(error)}") from error


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

"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685): small matrices that learn beside frozen linear layers."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from typing import TypeVar

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError, check_patterns, did_you_mean, list_some
from sonosco_like.serialization import serializable

Model = TypeVar("Model", bound=nn.Module)
_A, _B, _SCALE = "adapter_a", "adapter_b", "adapter_scale"
_MOST_LISTED = 8


class AdaptedLinear(nn.Linear):
    """W x + b + alpha / rank * B A x. The names of W and b are those of the linear layer that it was made of."""

    adapter_scale: Tensor

    def add_adapter(self, rank: int, alpha: float) -> None:
        """Make A and B; B is zero, so that the output is at first as it was."""
        self.adapter_a = nn.Parameter(self.weight.new_empty(rank, self.in_features))
        self.adapter_b = nn.Parameter(self.weight.new_zeros(self.out_features, rank))
        self.register_buffer(_SCALE, self.weight.new_tensor(alpha / rank))
        nn.init.kaiming_uniform_(self.adapter_a, a=math.sqrt(5))

    def forward(self, input: Tensor) -> Tensor:
        """The output of the layer and of its adapter."""
        low = nn.functional.linear(nn.functional.linear(input, self.adapter_a), self.adapter_b)
        return super().forward(input) + self.adapter_scale * low

    @torch.no_grad()
    def merge(self) -> None:
        """Become a plain linear layer with the same output."""
        self.weight.copy_(_merged_weight(self.weight, self.adapter_a, self.adapter_b, self.adapter_scale))
        for name in (_A, _B, _SCALE):
            delattr(self, name)
        self.__class__ = nn.Linear  # type: ignore[assignment]


@serializable
class LowRankAdapters:
    """Learns a change of low rank to frozen linear layers: W + alpha / rank * B A.

    The linear layers whose names match one of `patterns` get an adapter, such as `encoder.*` or `*.q_proj`. All other
    parameters of the model are frozen for good, and the optimizer does not have them, except those whose names match
    one of `also_train`: an output layer that `init_from` does not fill has to learn (`ctc_output.*`). In use, the
    adapters are merged into the weights.
    """

    rank: int = 8
    alpha: float = 16.0
    patterns: list[str] = field(default_factory=lambda: ["encoder.*"])
    also_train: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.rank < 1 or not 0 < self.alpha < math.inf:
            raise UsageError(
                f"The `rank` of adapters must be at least 1 and `alpha` above 0, got {self.rank} and {self.alpha}."
            )
        if not self.patterns:
            raise UsageError("LowRankAdapters needs at least one of `patterns`, such as encoder.* or *.q_proj.")
        self.frozen: frozenset[str] = frozenset()

    def attach(self, model: nn.Module) -> None:
        """Give the layers of a model their adapters, and freeze the rest."""
        for name, layer in self._chosen(model).items():
            if self.rank > min(layer.in_features, layer.out_features):
                raise UsageError(
                    f"`adapters.rank` is {self.rank}, and {name} has {layer.in_features} inputs and "
                    f"{layer.out_features} outputs: give a smaller rank, or `patterns` without this layer."
                )
            layer.__class__ = AdaptedLinear
            layer.add_adapter(self.rank, self.alpha)  # type: ignore[operator]
        named = dict(model.named_parameters())
        check_patterns(self.also_train, list(named))
        self.frozen = frozenset(name for name in named if not is_of_adapter(name) and not self._fits_also(name))
        for name in self.frozen:
            named[name].requires_grad_(False)

    def _chosen(self, model: nn.Module) -> dict[str, nn.Linear]:
        linear = {name: layer for name, layer in model.named_modules() if type(layer) is nn.Linear}
        for pattern in self.patterns:
            if not any(fnmatchcase(name, pattern) for name in linear):
                raise UsageError(
                    f"The pattern {pattern!r} of `adapters` fits no linear layer{did_you_mean(pattern, linear) or '.'} "
                    f"{type(model).__name__} has {list_some(list(linear), _MOST_LISTED)}."
                )
        return {n: each for n, each in linear.items() if any(fnmatchcase(n, pattern) for pattern in self.patterns)}

    def _fits_also(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.also_train)


def is_of_adapter(name: str) -> bool:
    """Whether a tensor of a model belongs to an adapter, by its name."""
    return name.rpartition(".")[2] in (_A, _B, _SCALE)


def frozen_by_adapters(model: nn.Module) -> frozenset[str]:
    """The names of the parameters that the adapters of a model froze; none if it has no `adapters`."""
    adapters = getattr(model, "adapters", None)
    return adapters.frozen if isinstance(adapters, LowRankAdapters) else frozenset()


def merge_adapters(model: nn.Module) -> None:
    """Merge the adapters of a model into its weights. It is then as one that never had any."""
    for layer in list(model.modules()):
        if isinstance(layer, AdaptedLinear):
            layer.merge()
    if getattr(model, "adapters", None) is not None:
        model.adapters = None  # type: ignore[assignment]
        model.requires_grad_(True)


def without_adapters(model: Model) -> Model:
    """The model itself if it has no adapters, else a copy with merged ones."""
    if not any(isinstance(layer, AdaptedLinear) for layer in model.modules()):
        return model
    merged = copy.deepcopy(model)
    merge_adapters(merged)
    return merged


def merged_weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a model by name, its adapters merged into them."""
    merged = {name: tensor for name, tensor in tensors.items() if not is_of_adapter(name)}
    for name in tensors:
        layer, dot, last = name.rpartition(".")
        if last == _A:
            parts = (tensors[f"{layer}{dot}{part}"] for part in ("weight", _A, _B, _SCALE))
            merged[f"{layer}{dot}weight"] = _merged_weight(*parts)
    return merged


def _merged_weight(weight: Tensor, a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
    return weight + scale * (b @ a)

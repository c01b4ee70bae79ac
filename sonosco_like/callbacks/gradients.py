"""Callbacks that log gradients, before clipping."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment, TrainerContext, epoch_is_over
from sonosco_like.metrics import RunningMeasures
from sonosco_like.serialization import serializable, state


@serializable
class LayerwiseGradientNorm(AbstractCallback):
    """Logs the norm of every layer's gradient, averaged over the optimizer steps of an epoch.

    At the end of each epoch the averages are logged as `layer_gradient_norm/<layer>` and appended to `norms`. They are
    taken before clipping. A layer is a module with parameters of its own.
    """

    norms: list[dict[str, float]] = state([])

    def __post_init__(self) -> None:
        self._means = RunningMeasures()

    def on_clip_gradients_start(self, moment: Moment) -> None:
        """Add the norms of this step; they stay on the device."""
        for layer, gradients in gradients_by_layer(moment.context.model).items():
            self._means.add_mean(layer, norm_of(gradients), 1.0)

    def on_epoch_end(self, moment: Moment) -> None:
        """Log the averages of the epoch, and clear them."""
        if epoch_is_over(moment) and self._means:
            self.norms.append(dict(self._means))
            self._means.clear()
            moment.context.log({f"layer_gradient_norm/{layer}": norm for layer, norm in self.norms[-1].items()})

    def remember_state(self) -> Callable[[], None]:
        """A function that restores the sums and norms of this moment."""
        means, norms = self._means.remember_state(), list(self.norms)

        def restore() -> None:
            means()
            self.norms = norms

        return restore

    def state_dict(self) -> dict[str, Any]:
        """The sums of the epoch under way."""
        return self._means.state_dict()

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue the epoch under way."""
        self._means.load_state_dict(content)


@serializable
class GradMonitor(AbstractCallback):
    """Logs statistics of the gradients at every `every`-th step of the optimizer, before clipping.

    `gradient/norm` is the norm of all gradients. Unless `layers` is false, each layer has `gradient/<layer>/` `norm`,
    `mean`, `std`, `max` (of absolute values) and `zeros` (the share of values that are exactly zero). With
    `distributions` it also has `gradient/<layer>/distribution`: sorted values at even distances, which TensorBoard
    shows as a histogram.
    """

    every: int = 50
    layers: bool = True
    distributions: bool = False
    steps: int = state(0)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise UsageError(f"`every` must be at least 1 step of the optimizer, got {self.every}.")

    def on_clip_gradients_start(self, moment: Moment) -> None:
        """Log the gradients at every `every`-th step."""
        self.steps += 1
        if self.steps % self.every == 0:
            self._log(moment.context)

    def _log(self, context: TrainerContext) -> None:
        found = gradients_by_layer(context.model)
        values = {"gradient/norm": norm_of([each for gradients in found.values() for each in gradients])}
        for layer, gradients in found.items() if self.layers else ():
            values |= {f"gradient/{layer}/{name}": value for name, value in statistics_of(gradients).items()}
        numbers = torch.stack(list(values.values())).tolist()
        context.log(dict(zip(values, numbers, strict=True)))
        if self.distributions:
            context.log({f"gradient/{layer}/distribution": distribution_of(each) for layer, each in found.items()})


def gradients_by_layer(model: nn.Module) -> dict[str, list[Tensor]]:
    """The gradients by the module that owns the parameters; `model` for parameters of the model itself."""
    found: dict[str, list[Tensor]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[name.rpartition(".")[0] or "model"].append(parameter.grad)
    return dict(found)


def norm_of(gradients: list[Tensor]) -> Tensor:
    """The norm of several gradients taken as one vector, on their device."""
    norms = torch.stack([torch.linalg.vector_norm(each, dtype=torch.float32) for each in gradients])
    total: Tensor = torch.linalg.vector_norm(norms)
    return total


def statistics_of(gradients: list[Tensor]) -> dict[str, Tensor]:
    """Statistics of several gradients taken as one vector, on their device."""
    values = torch.cat([each.flatten() for each in gradients]).float()
    return {
        "norm": torch.linalg.vector_norm(values),
        "mean": values.mean(),
        "std": values.std(correction=0),
        "max": values.abs().max(),
        "zeros": (values == 0).float().mean(),
    }


def distribution_of(gradients: list[Tensor], points: int = 256) -> Tensor:
    """Values of several gradients taken as one vector: sorted, and no more than `points` of them at even distances."""
    values = torch.cat([each.flatten() for each in gradients]).float().sort().values
    places = torch.linspace(0, len(values) - 1, min(points, len(values))).round().long()
    return values[places.to(values.device)].cpu()

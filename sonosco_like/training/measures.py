"""The measures for callbacks: the running averages of the training and the results of the last validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from sonosco_like.events import AbstractCallback, Listeners
from sonosco_like.metrics import RunningMeasures, Sums
from sonosco_like.training.processes import Processes

VALIDATION = "val_"
AVERAGED = "ema_"
GRADIENT_NORM = "gradient_norm"
_WHERE_READ = ("batch_end", "validation_end", "epoch_end", "log")  # events at which callbacks read averages


def validation_prefix(name: str | None, averaged: bool = False) -> str:
    """The prefix of the measures of a validation set: `val_`, `val_<name>_`, `val_ema_` for the averaged weights."""
    return VALIDATION + (AVERAGED if averaged else "") + (f"{name}_" if name else "")


def _may_read(listener: Any, measure: str) -> bool:
    """Whether a listener may read a measure: `measures_needed` names it, or is not overridden."""
    declares = getattr(type(listener), "measures_needed", None) not in (None, AbstractCallback.measures_needed)
    return measure in listener.measures_needed() if declares else True


class PerformanceMeasures(Mapping[str, float]):
    """`loss`, `gradient_norm`, `<metric>` of this epoch so far; `val_loss`, `val_<metric>` of the last validation.

    Further measures are what callbacks put in with `update_metric`. Numbers are computed when they are read. Reading
    waits for the device; not reading never does.
    """

    def __init__(self) -> None:
        self.training = RunningMeasures()
        self.validation: dict[str, RunningMeasures] = {}
        self.further: dict[str, float] = {}
        self._hooks_seen: Any = None
        self._norm_is_read = False

    def add_batch(
        self,
        loss: Tensor | float,
        weight: Tensor | float,
        measured: Mapping[str, Sums],
        processes: Processes,
        device: torch.device,
    ) -> None:
        """Add a batch of the training to the averages; with several processes, the batches of all."""
        is_alone = processes.size == 1
        running = self.training if is_alone else RunningMeasures()
        running.add_mean("loss", loss, weight)
        if measured:
            for name, sums in measured.items():
                running.add(name, sums)
        if not is_alone:
            running.all_reduce(processes.sum, device)
            self.training.merge(running)

    def add_gradient_norm(self, norm: Tensor | None) -> None:
        """Add the norm of the gradients of a step to its average, if it was measured."""
        if norm is not None:
            self.training.add_mean(GRADIENT_NORM, norm, 1.0)

    def norm_is_read(self, listeners: Listeners) -> bool:
        """Whether a callback reads the norm of the gradients: it names it in `measures_needed`, or names nothing."""
        if listeners.hooks is not self._hooks_seen:
            self._hooks_seen = listeners.hooks
            owners = {id(hook.owner): hook.owner for event in _WHERE_READ for hook in listeners.hooks.get(event, ())}
            self._norm_is_read = any(_may_read(owner, GRADIENT_NORM) for owner in owners.values())
        return self._norm_is_read

    def replace_validation(self, prefix: str, found: RunningMeasures) -> dict[str, float]:
        """Replace the results of the last validation by those of a new one, and return them by name."""
        self.validation[prefix] = found
        return {prefix + name: value for name, value in found.items()}

    def update_metric(self, name: str, value: float) -> None:
        """Set a measure that a callback computed; it stays until it is set again."""
        self.further[name] = float(value)

    def __getitem__(self, name: str) -> float:
        if name in self.further:
            return self.further[name]
        for prefix, found in self.validation.items():
            if name.startswith(prefix) and name.removeprefix(prefix) in found:
                return found[name.removeprefix(prefix)]
        return self.training[name]

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self.training if name not in self.further)
        for prefix, found in self.validation.items():
            yield from (prefix + name for name in found if prefix + name not in self.further)
        yield from self.further

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name}: {value:.6g}' for name, value in self.items())}}}"

    def remember_state(self) -> Callable[[], None]:
        """A function that restores the present averages."""
        training, validation, further = self.training.remember_state(), dict(self.validation), dict(self.further)

        def restore() -> None:
            training()
            self.validation, self.further = dict(validation), dict(further)

        return restore

    def state_dict(self) -> dict[str, Any]:
        """The sums of all averages."""
        validation = {prefix: found.state_dict() for prefix, found in self.validation.items()}
        return {"training": self.training.state_dict(), "validation": validation, "further": dict(self.further)}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue from sums that were saved."""
        self.training.load_state_dict(content["training"])
        self.validation = {prefix: RunningMeasures() for prefix in content["validation"]}
        for prefix, found in self.validation.items():
            found.load_state_dict(content["validation"][prefix])
        self.further = dict(content["further"])

"""From gradients to new weights: accumulation, scaling, clipping, the optimizer's step and its schedule."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Optimization:
    """The optimizer of a model with all that surrounds its step. Its state is part of the trainer's."""

    def __init__(self, model: nn.Module, optimizer: Any, scheduler: Any, scaler: torch.amp.GradScaler | None) -> None:
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.scaler = scaler
        self.pending = 0  # batches whose gradients are not used yet
        self._named = dict(model.named_parameters())
        self._parameters = list(self._named.values())
        self._settled = 0  # what `pending` was when a batch was last complete; -1 while the weights change

    def backward(self, loss: Tensor, batches: int) -> None:
        """Add the gradients of one of so many batches that share a step."""
        self.pending += 1
        share = loss / batches if batches > 1 else loss
        scaled: Any = self.scaler.scale(share) if self.scaler else share
        scaled.backward()

    def unscale(self) -> None:
        """Give the gradients their true size, if a scaler enlarged them."""
        if self.scaler:
            self.scaler.unscale_(self.optimizer)

    def clip(self, norm: float | None, value: float | None, measured: bool) -> Tensor | None:
        """Limit the gradients; returns their norm before that, if it is limited or to be measured."""
        if norm is None and value is None and not measured:
            return None
        parameters = [parameter for parameter in self._parameters if parameter.grad is not None]
        if value is not None:
            nn.utils.clip_grad_value_(parameters, value)
        if norm is None and not measured:
            return None
        return nn.utils.clip_grad_norm_(parameters, float("inf") if norm is None else norm).detach()

    def step(self) -> None:
        """Change the weights, forget the gradients, and go on in the schedule."""
        self._settled = -1
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.forget_gradients()
        if self.scheduler is not None:
            self.scheduler.step()

    def forget_gradients(self) -> None:
        """Begin to collect anew."""
        self.optimizer.zero_grad(set_to_none=True)
        self.pending = 0

    def settle(self) -> None:
        """A batch is complete: what follows belongs to the next one."""
        self._settled = self.pending

    def undo(self) -> bool:
        """Forget the batch under way. False if it cannot be told apart any more from those before it."""
        if self.pending == self._settled:
            return True
        if self._settled == 0:
            self.forget_gradients()
            return True
        return False

    def state_dict(self) -> dict[str, Any]:
        """The state of each part, and the gradients that wait for their step."""
        parts = {"optimizer": self.optimizer, "scheduler": self.scheduler, "scaler": self.scaler}
        named = self._named.items() if self.pending else ()
        return {
            **{name: part.state_dict() for name, part in parts.items() if part is not None},
            "pending": self.pending,
            "gradients": {name: parameter.grad for name, parameter in named if parameter.grad is not None},
        }

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        for name, part in (("optimizer", self.optimizer), ("scheduler", self.scheduler), ("scaler", self.scaler)):
            if part is not None:
                part.load_state_dict(content[name])
        self.pending = self._settled = content["pending"]
        gradients = content["gradients"]
        for name, parameter in self._named.items():
            parameter.grad = gradients[name].to(parameter.device) if name in gradients else None

"""The weights with which a saved trainer is used: those of the training, their average, or others at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.runs.checkpoints import PARTS
from sonosco_like.serialization import serializable, state


@serializable
class WeightAverage:
    """An exponential moving average of the weights, updated at every optimizer step.

    The share of the old average is `decay`, less in the beginning: (1 + n) / (10 + n) after n steps, so that the first
    weights are soon forgotten. Validations judge it beside the weights themselves, as `val_ema_<measure>`, and a
    finished model is used with it. Statistics such as those of batch normalisation are averaged too.
    """

    decay: float = 0.999
    steps: int = state(0)

    def __post_init__(self) -> None:
        if not 0 < self.decay < 1:
            raise UsageError(f"`decay` must lie between 0 and 1, got {self.decay}.")
        self.weights: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Add the present weights of a model to the average."""
        current = model.state_dict()
        if not self.weights:
            self.weights = {name: weight.clone() for name, weight in current.items()}
        self.steps += 1
        share = 1 - min(self.decay, (1 + self.steps) / (10 + self.steps))
        averaged = [name for name, weight in current.items() if weight.is_floating_point()]
        torch._foreach_lerp_([self.weights[name] for name in averaged], [current[name] for name in averaged], share)
        for name in current.keys() - set(averaged):
            self.weights[name].copy_(current[name])

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The model with the averaged weights inside the block; afterwards with its own."""
        own = {name: weight.clone() for name, weight in model.state_dict().items()}
        model.load_state_dict(self.weights)
        try:
            yield
        finally:
            model.load_state_dict(own)

    def state_dict(self) -> dict[str, Any]:
        """The averaged weights."""
        return {"weights": self.weights}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue from averaged weights."""
        self.weights = dict(content["weights"])


_State = dict[str, Any]


class UsedWeights:
    """The record in a checkpoint about its weights.

    A checkpoint that is the best by a measure is used with the weights which that measure judges: `plain` ones, or
    their `averaged` ones. At the end of a training callbacks put other weights in the place of its own, the best or a
    mean of several: `origin` says where they are from. Every checkpoint holds those of the training all the same,
    whenever it is written, and the training goes on from them. Only `final/` holds the others.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._own: dict[str, _State] = {}  # those of the training, while others are in their place
        self._judged: tuple[int, str] = (
            -1,
            "",
        )  # at which step a checkpoint was the best, and which weights were judged
        self.origin = ""
        self.kind = ""

    def judge(self, kind: str) -> None:
        """Record which weights the measure judges that makes this step the best; of several measures, the first."""
        step = self._trainer.global_step
        if kind and self._judged[0] != step:
            self._judged = step, kind

    def put(self, weights: Mapping[str, _State], origin: str, kind: str = "") -> None:
        """Give the model, and the average of its weights if there is one, other weights: their states by name."""
        self._own = self.of_training()
        self.origin, self.kind = origin, kind
        self._load(weights)

    def put_mean(self, weights: list[Mapping[str, _State]], origin: str) -> None:
        """Give the model, and the average of its weights, the mean of several states."""
        self.put(mean_of(weights), origin)

    def of_training(self) -> dict[str, _State]:
        """The weights that the training ended with."""
        return self._own or self._present()

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """The model with the weights of the training inside the block."""
        if not self._own:
            yield
            return
        final, origin = self._present(), self.origin
        self.origin = ""
        self._load(self._own)
        try:
            yield
        finally:
            self.origin = origin
            self._load(final)

    def give_back(self) -> None:
        """Continue from the weights of the training. Raises UsageError if only `final/` is left, which has others."""
        if self._own:
            self._load(self._own)
        elif self.origin and not self._trainer.session.is_finished:
            raise UsageError(
                f"This training cannot go on: the only weights that are left are {self.origin}, and those it ended "
                "with were in the checkpoints, which are gone. Begin a new run from these weights: --set "
                "init_from=RUN/final"
            )
        else:
            return
        self._own, self.origin, self.kind = {}, "", ""

    def state_dict(self) -> dict[str, Any]:
        """The origin of the weights, and which are used; empty if there is no choice."""
        final = {"origin": self.origin, "kind": self.kind} if self.origin else {}
        step, kind = self._judged
        return {**final, **({"judged_at": step, "judged": kind} if kind else {})}

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Take over the origin of the loaded weights."""
        self.origin, self.kind = content.get("origin", ""), content.get("kind", "")
        self._judged = content.get("judged_at", -1), content.get("judged", "")

    def _present(self) -> dict[str, _State]:
        parts = {name: getattr(self._trainer, name, None) for name in PARTS}
        return {name: _copied(part.state_dict()) for name, part in parts.items() if part is not None}

    def _load(self, weights: Mapping[str, _State]) -> None:
        for name, content in weights.items():
            getattr(self._trainer, name).load_state_dict(_copied(content))
        self._trainer.validator.forget_predictions()  # they were made with other weights


def mean_of(states: list[Any]) -> Any:
    """The mean of several states, tensor by tensor; of values that cannot be averaged, such as counts, the last one."""
    last = states[-1]
    if isinstance(last, Mapping):
        return {name: mean_of([state[name] for state in states]) for name in last}
    if isinstance(last, Tensor) and (last.is_floating_point() or last.is_complex()):
        wide = torch.complex128 if last.is_complex() else torch.float64
        total = torch.zeros_like(last, dtype=wide)
        for state in states:
            total += state.to(last.device, wide)
        return (total / len(states)).to(last.dtype)
    return last


def _copied(state: Any) -> Any:
    if isinstance(state, Mapping):
        return {name: _copied(value) for name, value in state.items()}
    return state.clone() if isinstance(state, Tensor) else state

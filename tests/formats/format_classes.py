"""The classes of the kept files, as they are today."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import torch
from torch import nn

from sonosco_like import serializable, state


@serializable
class WitnessNet(nn.Module):
    """Version 1 of the witness."""

    size: int = 2
    seen: int = state(0)

    def __post_init__(self) -> None:
        self.linear = nn.Linear(self.size, 1)


@serializable(version=2)
class WitnessStopper:
    """Version 1 called its field `wait` and its state `waited`, both in epochs of ten steps."""

    steps: int = 30
    waited_steps: int = state(0)

    @staticmethod
    def upgrade(version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """From epochs to steps."""
        return {"steps": 10 * fields["wait"]}

    @staticmethod
    def upgrade_state(version: int, state: dict[str, Any]) -> dict[str, Any]:
        """From epochs to steps."""
        return {"waited_steps": 10 * state["waited"]}


@serializable
class WitnessTrainer:
    """Holds one of each, and one twice."""

    model: WitnessNet
    stoppers: list[WitnessStopper] = field(default_factory=list)
    rates: tuple[float, ...] = (1e-3, 0.1)
    note: str = "no"
    history: dict[str, list[float]] = state({})
    moments: torch.Tensor | None = state(None)

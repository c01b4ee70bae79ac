"""Callbacks that log what the trainer and the machine are at: learning rates, memory. Speed is in `speed`."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sonosco_like.callbacks.intervals import Every, epoch_is_over
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.serialization import serializable

_MEBIBYTE = 2**20


@serializable
class Monitor(AbstractCallback, ABC):
    """Measures something and logs it `every` so often."""

    every: str = "10ba"

    def __post_init__(self) -> None:
        self._every = Every(self.every)

    @abstractmethod
    def measured(self, context: Any) -> Mapping[str, float]:
        """What is to be logged now."""

    def on_batch_end(self, moment: Moment) -> None:
        """Log if it is time after a batch."""
        if self._every.after_batch(moment.context):
            self._log(moment.context)

    def on_epoch_end(self, moment: Moment) -> None:
        """Log if it is time after an epoch."""
        if epoch_is_over(moment) and self._every.after_epoch(moment.context):
            self._log(moment.context)

    def _log(self, context: Any) -> None:
        values = self.measured(context)
        if values:
            context.log(values)


@serializable
class LRMonitor(Monitor):
    """Logs the learning rate `every` so often: `learning_rate`, or `learning_rate/<group>` if there are several."""

    def measured(self, context: Any) -> Mapping[str, float]:
        """The rate of each group of parameters."""
        groups = context.optimizer.param_groups
        if len(groups) == 1:
            return {"learning_rate": float(groups[0]["lr"])}
        return {f"learning_rate/{group.get('name', place)}": float(group["lr"]) for place, group in enumerate(groups)}


@serializable
class MemoryMonitor(Monitor):
    """Logs memory in MiB `every` so often.

    `memory/process` and `memory/process_peak` are the resident memory of this process; `memory/device`,
    `memory/device_reserved` and `memory/device_peak` are what torch holds on a GPU, if the model is on one.
    """

    every: str = "100ba"

    def measured(self, context: Any) -> Mapping[str, float]:
        """What is held now, and what was held at most."""
        return memory_in_use(_device_of(context.model))


def memory_in_use(device: torch.device) -> dict[str, float]:
    """What this process holds in memory and on a device, in MiB."""
    found = _resident_memory()
    if device.type == "cuda":
        found |= {
            "memory/device": torch.cuda.memory_allocated(device),
            "memory/device_reserved": torch.cuda.memory_reserved(device),
            "memory/device_peak": torch.cuda.max_memory_allocated(device),
        }
    return {name: amount / _MEBIBYTE for name, amount in found.items()}


def _resident_memory() -> dict[str, float]:
    """Bytes of resident memory: now, where Linux tells it, and at most, where the system has the call."""
    found: dict[str, float] = {}
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        for name, key in (("memory/process", "VmRSS"), ("memory/process_peak", "VmHWM")):
            if key in lines:
                found[name] = float(lines[key].split()[0]) * 1024
    elif sys.platform != "win32":
        import resource  # there is none on Windows

        found["memory/process_peak"] = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return found


def _device_of(model: torch.nn.Module) -> torch.device:
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device

"""Saving 30 million parameters with AdamW's moments, against a bare safetensors file.

The bare one is written aside, flushed and renamed, as ours is: overwriting a file in place is quicker, as it gets the
pages of memory back that it has just let go of, and leaves nothing whole if it is cut off.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import report_ratio
from benchmarks.timing import print_ratios, take_turns
from sonosco_like import load, save, serializable


@serializable
class Net(nn.Module):
    """A stack of linear layers with `layers` x `size` x `size` weights."""

    size: int = 1000
    layers: int = 30

    def __post_init__(self) -> None:
        self.stack = nn.Sequential(*(nn.Linear(self.size, self.size) for _ in range(self.layers)))


@serializable
class Trainer:
    """A model and an optimizer that keeps its moments."""

    model: Net

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state."""
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Restore the optimizer."""
        self.optimizer.load_state_dict(content["optimizer"])


def main() -> None:
    """Print saving and loading."""
    trainer = Trainer(model=Net())
    for parameter in trainer.model.parameters():
        parameter.grad = torch.randn_like(parameter)
    trainer.optimizer.step()
    moments = trainer.optimizer.state_dict()["state"]
    tensors = {f"model.{name}": value for name, value in trainer.model.state_dict().items()}
    tensors |= {f"optimizer.{i}.{key}": value for i, entry in moments.items() for key, value in entry.items()}
    folder = Path(tempfile.mkdtemp())

    def bare() -> None:
        path = folder / "bare.new"
        save_file(tensors, path)
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        path.replace(folder / "bare.safetensors")

    try:
        seconds = take_turns(
            {"save_file, fsync, rename": bare, "ours, save": lambda: save(trainer, folder / "ours")}, repeats=9
        )
        size = sum(tensor.nbytes for tensor in tensors.values())
        print(f"{size / 1e6:.0f} MB in {len(tensors)} tensors; at most 1.10 x wanted")
        print_ratios(seconds, "save_file, fsync, rename")
        report_ratio(f"checkpoint of {size / 1e6:.0f} MB", seconds, "ours, save", "save_file, fsync, rename", goal=1.1)
        load(folder / "ours")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

"""A callback that lets two runs be compared step by step: what the weights, the loss and the random state were."""

from __future__ import annotations

import json
import os
import zlib
from typing import Any

import torch
from torch import Tensor

from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.run_folder import WITNESS
from sonosco_like.serialization import serializable


@serializable
class StepWitness(AbstractCallback):
    """Writes a row after every batch to `witness.jsonl` in the run folder, checksums in place of tensors.

    `sonosco verify-resume` adds it to both of its runs. Rows of every start stay, also those of steps that were lost
    and done again; each says which process wrote it.
    """

    order: int = 500

    def on_batch_end(self, moment: Moment) -> None:
        """Write down where the run is."""
        context = moment.context
        row = {
            "step": context.global_step,
            "epoch": context.epoch,
            "process": os.getpid(),
            "loss": float(context.performance_measures.get("loss", float("nan"))).hex(),
            "random": _checksum(torch.get_rng_state()),
            "rates": [float(group["lr"]).hex() for group in context.optimizer.param_groups],
            "weights": _checksums(context.model.state_dict()),
        }
        with (context.experiment.folder / WITNESS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _checksums(values: dict[str, Any]) -> dict[str, int]:
    return {name: _checksum(value) for name, value in values.items() if isinstance(value, Tensor)}


def _checksum(tensor: Tensor) -> int:
    content: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return zlib.crc32(content)

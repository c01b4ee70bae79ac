"""Batches of any kind: our own `Batch`, or an (inputs, targets) pair."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sonosco_like.records import Batch


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch with its tensors on a device; what has none is left as it is, and all of it if that is the CPU."""
    if device.type == "cpu":  # where batches come from
        return batch
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(part, device) for part in batch)
    if isinstance(batch, dict):
        return {key: to_device(part, device) for key, part in batch.items()}
    if isinstance(batch, (Tensor, Batch)):
        return batch.to(device, non_blocking=True)
    return batch


def inputs_of(batch: Any) -> Any:
    """What the model is called with: a Batch whole, of a pair the first part."""
    return batch[0] if isinstance(batch, (list, tuple)) else batch


def targets_of(batch: Any) -> Any:
    """What the loss compares with: a Batch whole, of a pair the second part."""
    return batch[1] if isinstance(batch, (list, tuple)) else batch


def weight_of(loss: Any, batch: Any) -> Tensor | float:
    """What the mean loss of a batch was taken over: what the loss declares, else the examples."""
    if hasattr(loss, "weight") and callable(loss.weight):
        weight: Tensor | float = loss.weight(batch)
        return weight
    targets = targets_of(batch)
    return float(len(targets)) if hasattr(targets, "__len__") else 1.0


def describe_batch(batch: Any) -> str:
    """Shape and utterances of a batch, for messages."""
    if isinstance(batch, Batch):
        shape = " x ".join(map(str, batch.features_BTF.shape))
        ids = ", ".join(batch.ids[:8]) + (" ..." if len(batch.ids) > 8 else "")
        return f"features of {shape}" + (f", utterances {ids}" if ids else "")
    inputs = inputs_of(batch)
    return f"inputs of {' x '.join(map(str, inputs.shape))}" if isinstance(inputs, Tensor) else type(batch).__name__

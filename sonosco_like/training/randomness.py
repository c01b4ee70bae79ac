"""The random generators a run draws from, taken and put back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Begin all generators anew."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def generator_states() -> dict[str, Any]:
    """Where every generator is: torch's on the CPU and on each GPU, Python's and numpy's."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "cuda": list(torch.cuda.get_rng_state_all()) if torch.cuda.is_available() else [],
        "python": random.getstate(),
        "numpy": (name, keys, int(position), int(has_gauss), float(gauss)),
    }


def restore_generators(states: dict[str, Any]) -> None:
    """Put every generator back to where it was."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])


def as_plain_data(states: dict[str, Any]) -> dict[str, Any]:
    """Generator states as lists and numbers, which can be sent to another process."""
    name, keys, *rest = states["numpy"]
    return {
        "torch": states["torch"].tolist(),
        "cuda": [state.tolist() for state in states["cuda"]],
        "python": states["python"],
        "numpy": [name, keys.tolist(), *rest],
    }


def from_plain_data(plain: dict[str, Any]) -> dict[str, Any]:
    """Generator states again from what `as_plain_data` gave."""
    version, numbers, gauss = plain["python"]
    name, keys, *rest = plain["numpy"]
    return {
        "torch": torch.tensor(plain["torch"], dtype=torch.uint8),
        "cuda": [torch.tensor(state, dtype=torch.uint8) for state in plain["cuda"]],
        "python": (version, tuple(numbers), gauss),
        "numpy": (name, np.array(keys, dtype=np.uint32), *rest),
    }

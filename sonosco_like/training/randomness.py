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

"""What a run came to: `final/`, which is written once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sonosco_like.serialization import dumps, files
from sonosco_like.serialization.document import MAX_BYTES
from sonosco_like.serialization.folder import GRAPH, read_origin
from sonosco_like.training.change_rules import changed_leaves
from sonosco_like.training.checkpoints import state_dict_of
from sonosco_like.training.used_weights import PARTS


def holds_the_end(final: Path | None, trainer: Any) -> bool:
    """Whether a folder holds this trainer as it ended already: at the same step, with the same settings and weights.

    A run that was finished then stays as it is when it is resumed, whatever its callbacks have noted meanwhile.
    """
    origin = read_origin(final) if final is not None else None
    if final is None or origin is None or origin.step != trainer.global_step:
        return False
    settings = files.read_file(final / GRAPH, MAX_BYTES).decode()
    if changed_leaves(settings, dumps(trainer, state=False), []):
        return False
    parts = {name: part for name in PARTS if (part := getattr(trainer, name, None)) is not None}
    return all(_equal(state_dict_of(final, name), part.state_dict()) for name, part in parts.items())


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[name], b[name]) for name in a)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a.cpu(), b.cpu())
    return bool(a == b)

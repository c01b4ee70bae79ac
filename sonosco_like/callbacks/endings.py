"""How a training ended."""

from __future__ import annotations

from typing import Any

from sonosco_like.events import AbstractCallback


def was_interrupted(callback: AbstractCallback, context: Any) -> bool:
    """Whether a signal ended the training before its time, in any of the processes in which the callback listens."""
    here = bool(getattr(context.experiment, "interrupted", False))
    return bool(context.processes.any(here)[0]) if callback.ranks is None else here

"""What a torch scheduler remembers, as plain data: torch keeps the milestones of MultiStepLR in a Counter."""

from __future__ import annotations

from collections import Counter
from typing import Any


def plain_state(scheduler: Any) -> Any:
    """The state of a scheduler, or of one made of others, in lists, mappings and numbers."""
    return _plain(scheduler.state_dict())


def load_plain_state(scheduler: Any, state: dict[str, Any]) -> None:
    """Continue from what `plain_state` gave."""
    scheduler.load_state_dict(_as_torch_has_it(scheduler, state))


def _plain(value: Any) -> Any:
    if isinstance(value, Counter):
        return sorted(value.elements())
    if type(value) is dict:
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if type(value) is list else value


def _as_torch_has_it(scheduler: Any, state: dict[str, Any]) -> dict[str, Any]:
    state = dict(state)
    if isinstance(getattr(scheduler, "milestones", None), Counter):
        state["milestones"] = Counter(state["milestones"])
    parts = getattr(scheduler, "_schedulers", ())
    if parts:
        state["_schedulers"] = [_as_torch_has_it(*each) for each in zip(parts, state["_schedulers"], strict=True)]
    return state

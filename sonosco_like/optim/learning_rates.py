"""The learning rates of a run: the rate of the schedule times the reductions of callbacks; and the state of schedules.

A schedule computes its rates as if nothing else changed them. The rate in use is that of the schedule times the
`lr_factor` of the parameter group, which is saved with the optimizer. This holds for every schedule, whether it
computes a rate from the last one or from the step, and for callbacks that write `group["lr"]` themselves.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import Tensor

_FACTOR = "lr_factor"


def start_schedule(optimizer: Any, scheduler: Any) -> None:
    """Give each parameter group the factor 1 of a schedule that no callback has changed yet."""
    if hasattr(scheduler, "get_last_lr"):
        for group in optimizer.param_groups:
            group.setdefault(_FACTOR, 1.0)


def step_schedule(optimizer: Any, scheduler: Any) -> None:
    """Advance a schedule by one step, and keep the reductions of callbacks."""
    if not hasattr(scheduler, "get_last_lr"):
        scheduler.step()
        return
    groups, rates = optimizer.param_groups, _scheduled_rates(optimizer, scheduler)
    changed = [(group, rate) for group, rate in zip(groups, rates, strict=True) if group[_FACTOR] != 1.0]
    for group, rate in changed:
        _set_rate(group, rate)
    scheduler.step()
    for group, _ in changed:
        _set_rate(group, float(group["lr"]) * group[_FACTOR])


def reduce_rates(optimizer: Any, scheduler: Any, factor: float, min_lr: float) -> bool:
    """Multiply the rate of every parameter group by `factor`, but not below `min_lr`; False if no rate changed."""
    groups = optimizer.param_groups
    factors = [_limited_factor(float(group["lr"]), factor, min_lr) for group in groups]
    if hasattr(scheduler, "get_last_lr"):
        for group, rate, each_factor in zip(groups, _scheduled_rates(optimizer, scheduler), factors, strict=True):
            group[_FACTOR] *= each_factor
            _set_rate(group, rate * group[_FACTOR])
    else:
        for group, each_factor in zip(groups, factors, strict=True):
            _set_rate(group, float(group["lr"]) * each_factor)
    return any(each_factor != 1.0 for each_factor in factors)


def replace_scheduled_rates(optimizer: Any, scheduler: Any, rates: list[float]) -> None:
    """Replace the last rates of the schedule, and keep the reductions of callbacks."""
    _scheduled_rates(optimizer, scheduler)
    scheduler._last_lr = list(rates)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        _set_rate(group, rate * group[_FACTOR])


def restarted_schedule(optimizer: Any, old: Any, build: Callable[[Any], Any], steps: int) -> Any:
    """A schedule in the place of an `old` one, as if it had been in use from the beginning, so many steps ago.

    The reductions of callbacks stay.
    """
    if hasattr(old, "get_last_lr"):
        _scheduled_rates(optimizer, old)  # takes down what callbacks have changed
    for group in optimizer.param_groups:
        if "initial_lr" in group:
            _set_rate(group, float(group["initial_lr"]))
    scheduler = build(optimizer)
    start_schedule(optimizer, scheduler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch expects a step of the optimizer before each of the schedule
        for _ in range(steps):
            scheduler.step()
    for group in optimizer.param_groups:
        if group.get(_FACTOR, 1.0) != 1.0:
            _set_rate(group, float(group["lr"]) * group[_FACTOR])
    return scheduler


def steps_done(state: Any) -> int:
    """The steps that a schedule has done, by its state."""
    parts = state.get("_schedulers") or [{}]
    return int(state["last_epoch"] if "last_epoch" in state else steps_done(parts[0]) if parts[0] else 0)


def _scheduled_rates(optimizer: Any, scheduler: Any) -> list[float]:
    """The last rates of the schedule; updates the factor of each group whose rate was changed since then."""
    rates = [float(rate) for rate in scheduler.get_last_lr()]
    for place, group in enumerate(optimizer.param_groups):
        rate = float(group["lr"])
        if _FACTOR not in group:  # saved by an older version, which reduced the rates of the schedule itself
            group[_FACTOR], rates[place] = 1.0, rate
            scheduler._last_lr[place] = rate
        if rates[place] and not math.isclose(rate, rates[place] * group[_FACTOR], rel_tol=1e-12):
            group[_FACTOR] = rate / rates[place]
    return rates


def _limited_factor(rate: float, factor: float, min_lr: float) -> float:
    """The factor that does not lower `rate` below `min_lr`; 1 if the rate is not above `min_lr` already."""
    if rate <= min_lr:
        return factor if min_lr == 0 else 1.0
    return max(factor, min_lr / rate)


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def plain_state(scheduler: Any) -> Any:
    """The state of a torch scheduler as plain data; torch keeps the milestones of MultiStepLR in a Counter."""
    return _to_plain(scheduler.state_dict())


def load_plain_state(scheduler: Any, state: dict[str, Any]) -> None:
    """Restore a scheduler from what `plain_state` returned."""
    scheduler.load_state_dict(_torch_state(scheduler, state))


def _to_plain(value: Any) -> Any:
    if isinstance(value, Counter):
        return sorted(value.elements())
    if type(value) is dict:
        return {key: _to_plain(each) for key, each in value.items()}
    return [_to_plain(each) for each in value] if type(value) is list else value


def _torch_state(scheduler: Any, state: dict[str, Any]) -> dict[str, Any]:
    state = dict(state)
    if isinstance(getattr(scheduler, "milestones", None), Counter):
        state["milestones"] = Counter(state["milestones"])
    parts = getattr(scheduler, "_schedulers", ())
    if parts:
        state["_schedulers"] = [_torch_state(*each) for each in zip(parts, state["_schedulers"], strict=True)]
    return state

"""Learning rates that somebody changed beside their schedule: what a callback takes off the rate stays off.

A schedule computes as if nobody had touched its rates. What is used is its rate times the `lr_factor` of the parameter
group, which is saved with the optimizer. This holds for every schedule, whether it goes on from the last rate or
computes each one anew, and for callbacks that write `group["lr"]` themselves.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

_FACTOR = "lr_factor"


def begin(optimizer: Any, scheduler: Any) -> None:
    """Note that nobody has changed the rates of a schedule yet."""
    if hasattr(scheduler, "get_last_lr"):
        for group in optimizer.param_groups:
            group.setdefault(_FACTOR, 1.0)


def step(optimizer: Any, scheduler: Any) -> None:
    """Go on in a schedule, and keep what was changed beside it."""
    if not hasattr(scheduler, "get_last_lr"):
        scheduler.step()
        return
    groups, rates = optimizer.param_groups, _scheduled(optimizer, scheduler)
    changed = [(group, rate) for group, rate in zip(groups, rates, strict=True) if group[_FACTOR] != 1.0]
    for group, rate in changed:
        _set(group, rate)
    scheduler.step()
    for group, _ in changed:
        _set(group, float(group["lr"]) * group[_FACTOR])


def reduce(optimizer: Any, scheduler: Any, factor: float, min_lr: float) -> bool:
    """Multiply the rate of every parameter group, none below `min_lr`; False if all were below it already."""
    groups = optimizer.param_groups
    shares = [_share(float(group["lr"]), factor, min_lr) for group in groups]
    if hasattr(scheduler, "get_last_lr"):
        for group, rate, share in zip(groups, _scheduled(optimizer, scheduler), shares, strict=True):
            group[_FACTOR] *= share
            _set(group, rate * group[_FACTOR])
    else:
        for group, share in zip(groups, shares, strict=True):
            _set(group, float(group["lr"]) * share)
    return any(share != 1.0 for share in shares)


def reschedule(optimizer: Any, scheduler: Any, rates: list[float]) -> None:
    """Put other rates in the place of those that the schedule gave last, and keep what was changed beside it."""
    _scheduled(optimizer, scheduler)
    scheduler._last_lr = list(rates)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        _set(group, rate * group[_FACTOR])


def _scheduled(optimizer: Any, scheduler: Any) -> list[float]:
    """The rates that the schedule gave last; notes what was made of them since then."""
    rates = [float(rate) for rate in scheduler.get_last_lr()]
    for place, group in enumerate(optimizer.param_groups):
        rate = float(group["lr"])
        if _FACTOR not in group:  # saved by a former version, which took reductions off the schedule's own rates
            group[_FACTOR], rates[place] = 1.0, rate
            scheduler._last_lr[place] = rate
        if rates[place] and not math.isclose(rate, rates[place] * group[_FACTOR], rel_tol=1e-12):
            group[_FACTOR] = rate / rates[place]
    return rates


def _share(rate: float, factor: float, min_lr: float) -> float:
    """What a rate is to be multiplied by; a rate that is below the least one already is left alone."""
    if rate <= min_lr:
        return factor if min_lr == 0 else 1.0
    return max(factor, min_lr / rate)


def _set(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate

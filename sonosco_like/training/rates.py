"""New settings for an optimizer and a schedule that were restored with their old ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from sonosco_like.optim import reductions

logger = logging.getLogger(__name__)


def change_optimizer(trainer: Any, settings: dict[str, Any], old_rate: float | None) -> None:
    """Put settings into every parameter group; a learning rate also into the schedule.

    A rate is the one the schedule starts from. What schedule and callbacks have made of the old one stays a factor.
    """
    groups = getattr(trainer.optimizer, "param_groups", [])
    for group in groups:
        group.update({name: value for name, value in settings.items() if name != "lr"})
    if "lr" not in settings or not groups:
        return
    share = settings["lr"] / old_rate if old_rate else None
    before = float(groups[0]["lr"])
    for group in groups:
        for name in ("lr", "initial_lr"):
            if name in group:
                group[name] = _changed(group[name], share, settings["lr"])
    for scheduler in _schedulers(trainer.scheduler):
        for name in ("base_lrs", "_last_lr"):
            rates = getattr(scheduler, name, None)
            if rates is not None:
                setattr(scheduler, name, [_changed(rate, share, settings["lr"]) for rate in rates])
    logger.info("learning rate of the next batch: %.4g -> %.4g", before, float(groups[0]["lr"]))


def follow_new_schedule(trainer: Any, schedule: Any) -> None:
    """Have the next batch use the rate that a changed formula gives for it."""
    scheduler = trainer.scheduler
    if not hasattr(scheduler, "base_lrs"):  # not built yet: it will be, from the new settings
        return
    factor = schedule.factor(scheduler.last_epoch)
    reductions.reschedule(trainer.optimizer, scheduler, [base * factor for base in scheduler.base_lrs])


def _changed(rate: Any, share: float | None, new: float) -> Any:
    return rate * share if share is not None else new


def _schedulers(scheduler: Any) -> Iterator[Any]:
    """A scheduler, and those inside one that is made of others."""
    if hasattr(scheduler, "_last_lr"):
        yield scheduler
    for part in getattr(scheduler, "_schedulers", ()):
        yield from _schedulers(part)

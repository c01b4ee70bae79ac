"""Callbacks for phases of a training: parameters that are frozen at first, attention with a soft window at first."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Protocol, runtime_checkable

from torch import nn

from sonosco_like.errors import UsageError, check_patterns
from sonosco_like.events import AbstractCallback, Duration, Moment, TrainerContext, has_lasted
from sonosco_like.serialization import serializable, state

logger = logging.getLogger(__name__)


@serializable
class FreezeParameters(AbstractCallback):
    """Freezes the parameters whose names match one of `patterns`, for a time or for the whole training.

    `patterns` are for example `encoder.*` or `*.bias`. `until` is how long the parameters are frozen: `3ep`, `500ba`,
    `90min`, or a share of the training such as `0.2dur`; null means always. A frozen parameter gets no gradient, so the
    optimizer does not change it, not even by weight decay, and has no moments of it until it learns. Statistics such as
    those of batch normalisation are no parameters and are still updated. `thawed` is true when the time is over.
    """

    patterns: list[str] = field(default_factory=lambda: ["encoder.*"])
    until: int | str | None = None
    thawed: bool = state(False)

    def __post_init__(self) -> None:
        if not self.patterns:
            raise UsageError("FreezeParameters needs at least one of `patterns`, such as encoder.* or *.bias.")
        self._until = Duration.parse(self.until) if self.until is not None else None
        self._held: dict[str, nn.Parameter] = {}

    def on_attach(self, moment: Moment) -> None:
        """Freeze the parameters, unless the time is over; refuse patterns that match no parameter."""
        if self.thawed or self._held:
            return
        context = moment.context
        named = dict(context.model.named_parameters())
        check_patterns(self.patterns, list(named))
        frozen_by_others = set().union(*(other._held for other in self._others(context)))
        for name, parameter in named.items():
            fits = any(fnmatchcase(name, pattern) for pattern in self.patterns)
            if fits and (parameter.requires_grad or name in frozen_by_others):
                parameter.requires_grad_(False)
                self._held[name] = parameter
        if not any(parameter.requires_grad for parameter in named.values()):
            raise UsageError(f"The patterns {', '.join(self.patterns)} leave no parameter that learns.")
        logger.info("Frozen: %d of %d parameters, %s.", len(self._held), len(named), self._duration_text())

    def on_batch_start(self, moment: Moment) -> None:
        """Unfreeze the parameters before the first batch after the time is over."""
        if self._held and self._until is not None and has_lasted(self._until, moment.context):
            self._thaw(moment.context)

    def _thaw(self, context: TrainerContext) -> None:
        held_by_others = set().union(*(other._held for other in self._others(context)))
        for name, parameter in self._held.items():
            parameter.requires_grad_(name not in held_by_others)
        logger.info("%d parameters learn from step %d on.", len(self._held), context.global_step)
        self._held, self.thawed = {}, True

    def _others(self, context: TrainerContext) -> Iterator[FreezeParameters]:
        return (each for each in context.callbacks if isinstance(each, FreezeParameters) and each is not self)

    def _duration_text(self) -> str:
        return "for good" if self.until is None else f"until {self.until} are over"


@serializable
class DisableSoftWindowAttention(AbstractCallback):
    """Ends the soft window pre-training of attention decoders (Hannun et al. 2019) `after` some time, such as `3ep`.

    A decoder with a `window_sigma` starts with attention that prefers the diagonal. This callback removes the
    preference.
    """

    after: int | str = "3ep"

    def __post_init__(self) -> None:
        self._after = Duration.parse(self.after)
        self._enabled = True

    def on_training_start(self, moment: Moment) -> None:
        """Refuse a model that has no window to turn off."""
        if not _find_soft_windows(moment.context.model):
            raise UsageError(
                "DisableSoftWindowAttention finds no soft window in the model: "
                "give its attention decoder a `window_sigma`, or leave this callback out."
            )

    def on_batch_start(self, moment: Moment) -> None:
        """Turn the window off if the time is over."""
        if self._enabled and has_lasted(self._after, moment.context):
            self._enabled = False
            for decoder in _find_soft_windows(moment.context.model):
                if decoder.soft_window:
                    decoder.soft_window = False
                    logger.info("Soft window of attention turned off at step %d.", moment.context.global_step)


@runtime_checkable
class SoftWindowed(Protocol):
    """A part of a model whose attention can prefer the diagonal; without a `window_sigma` it never does."""

    window_sigma: float | None
    soft_window: bool


def _find_soft_windows(model: nn.Module) -> list[SoftWindowed]:
    """The parts of a model that have a soft window, whether it is on or off."""
    return [part for part in model.modules() if isinstance(part, SoftWindowed) and part.window_sigma is not None]

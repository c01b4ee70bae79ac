"""Parts of a model that do not learn, or not yet."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Duration, Moment, has_lasted
from sonosco_like.optim import check_patterns
from sonosco_like.serialization import serializable, state

logger = logging.getLogger(__name__)


@serializable
class FreezeParameters(AbstractCallback):
    """Keeps the parameters whose names fit one of `patterns` from learning, for good or until some time.

    `patterns` are such as `encoder.*` or `*.bias`. `until` is how long they are frozen, such as `3ep` or `500ba`; null
    is for ever. A frozen parameter gets no gradient, so the optimizer leaves it alone, weight decay included;
    statistics such as those of batch normalisation are no parameters and go on. `thawed` is whether the time is over.
    """

    patterns: list[str] = field(default_factory=lambda: ["encoder.*"])
    until: str | None = None
    thawed: bool = state(False)

    def __post_init__(self) -> None:
        if not self.patterns:
            raise UsageError("FreezeParameters needs one of `patterns` at least, such as encoder.* or *.bias.")
        self._until = Duration.parse(self.until) if self.until is not None else None
        self._held: dict[str, nn.Parameter] = {}

    def on_attach(self, moment: Moment) -> None:
        """Freeze, unless the time is over; refuse patterns that fit nothing."""
        if self.thawed or self._held:
            return
        context = moment.context
        named = dict(context.model.named_parameters())
        check_patterns(self.patterns, list(named))
        frozen_by_others = set().union(*(other._held for other in self._others(context)))
        for name, parameter in named.items():
            fits = any(fnmatchcase(name, pattern) for pattern in self.patterns)
            if fits and (parameter.requires_grad or name in frozen_by_others):
                self._held[name] = parameter.requires_grad_(False)
        if not any(parameter.requires_grad for parameter in named.values()):
            raise UsageError(f"The patterns {', '.join(self.patterns)} leave no parameter that learns.")
        logger.info("Frozen: %d of %d parameters, %s.", len(self._held), len(named), self._how_long())

    def on_batch_start(self, moment: Moment) -> None:
        """Let the parameters learn from the first batch after the time is over."""
        if self._held and self._until is not None and has_lasted(self._until, moment.context):
            self._thaw(moment.context)

    def _thaw(self, context: Any) -> None:
        held_by_others = set().union(*(other._held for other in self._others(context)))
        for name, parameter in self._held.items():
            parameter.requires_grad_(name not in held_by_others)
        logger.info("%d parameters learn from step %d on.", len(self._held), context.global_step)
        self._held, self.thawed = {}, True

    def _others(self, context: Any) -> Iterator[FreezeParameters]:
        return (each for each in context.callbacks if isinstance(each, FreezeParameters) and each is not self)

    def _how_long(self) -> str:
        return "for good" if self.until is None else f"until {self.until} are over"

"""What callbacks that follow one measure have in common: when it is evaluated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from sonosco_like.callbacks.directions import given_by_callbacks
from sonosco_like.callbacks.intervals import epoch_is_over
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.serialization import serializable


@serializable
class Watcher(AbstractCallback, ABC):
    """Follows the measure `monitor` from evaluation to evaluation.

    A measure of the validation (`val_...`) is evaluated by every complete validation, a measure of the training by
    every complete epoch.
    """

    monitor: str = "val_loss"

    @abstractmethod
    def evaluated(self, value: float, context: Any) -> None:
        """The measure was evaluated anew."""

    def measures_needed(self) -> Iterable[str]:
        """The measure it follows."""
        return (self.monitor,)

    def on_validation_end(self, moment: Moment) -> None:
        """Evaluate a measure of the validation, if it was this validation, or a callback, that computed it."""
        computed = not isinstance(moment.result, Mapping) or self.monitor in moment.result
        given = self.monitor in given_by_callbacks(moment.context)
        if self._is_of_validation and moment.error is None and (computed or given):
            self._evaluate(moment.context)

    def on_epoch_end(self, moment: Moment) -> None:
        """Evaluate a measure of the training."""
        if not self._is_of_validation and epoch_is_over(moment):
            self._evaluate(moment.context)

    @property
    def _is_of_validation(self) -> bool:
        return self.monitor.startswith("val_")

    def _evaluate(self, context: Any) -> None:
        value = context.performance_measures.get(self.monitor)
        if value is not None:
            self.evaluated(value, context)

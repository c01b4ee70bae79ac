"""What callbacks that follow one measure have in common: when it is evaluated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from sonosco_like.callbacks.directions import given_by_callbacks
from sonosco_like.callbacks.intervals import epoch_is_over
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.serialization import serializable


def evaluated_by_validation(measure: str, moment: Moment) -> bool:
    """Whether a measure was computed by the validation that ends here, or by a callback."""
    computed = not isinstance(moment.result, Mapping) or measure in moment.result
    given = measure in given_by_callbacks(moment.context)
    return _is_of_validation(measure) and moment.error is None and (computed or given)


def evaluated_by_epoch(measure: str, moment: Moment) -> bool:
    """Whether a measure of the training is that of a whole epoch, which ends here."""
    return not _is_of_validation(measure) and epoch_is_over(moment)


def _is_of_validation(measure: str) -> bool:
    return measure.startswith("val_")


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
        """Evaluate a measure of the validation."""
        if evaluated_by_validation(self.monitor, moment):
            self._evaluate(moment.context)

    def on_epoch_end(self, moment: Moment) -> None:
        """Evaluate a measure of the training."""
        if evaluated_by_epoch(self.monitor, moment):
            self._evaluate(moment.context)

    def _evaluate(self, context: Any) -> None:
        value = context.performance_measures.get(self.monitor)
        if value is not None:
            self.evaluated(value, context)

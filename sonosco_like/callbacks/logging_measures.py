"""What is logged: the measures of training and validation. Where it goes is up to the destinations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sonosco_like.callbacks.intervals import Every, epoch_is_over
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.serialization import serializable, state

_VALIDATION = "val_"


@serializable
class LogMeasures(AbstractCallback):
    """Logs the running averages of the training every so often, and those of every validation.

    `every` is the interval between two logs of the training (`10ba`, `1ep`, `30s`); an epoch that ends is always
    logged, and so is the training at each validation, so that the two can be compared at the same step. Reading the
    averages waits for the device, which is why it is not done after every batch unless asked for.
    """

    every: str = "10ba"
    logged_at: int = state(-1)

    def __post_init__(self) -> None:
        self._every = Every(self.every)

    def __call__(self, epoch: int, step: int, performance_measures: Mapping[str, float], context: Any) -> None:
        """Log the training if it is time."""
        if self._every.after_batch(context):
            self._log_training(context)

    def on_validation_end(self, moment: Moment) -> None:
        """Log what a complete validation found, beside the training so far."""
        if moment.error is None:
            self._log_training(moment.context)
            moment.context.log(moment.result)

    def on_epoch_end(self, moment: Moment) -> None:
        """Log the averages of the whole epoch; not those of a part, which a run that is never stopped does not log."""
        if epoch_is_over(moment):
            self._log_training(moment.context)

    def _log_training(self, context: Any) -> None:
        if self.logged_at != context.global_step:
            self.logged_at = context.global_step
            measures = context.performance_measures
            names = (name for name in measures if not name.startswith(_VALIDATION))
            context.log({name: measures[name] for name in sorted(names, key=lambda name: name != "loss")})

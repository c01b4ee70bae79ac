"""The measures that callbacks follow: how they are named, which direction is better, when they are evaluated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from sonosco_like.errors import UsageError, did_you_mean
from sonosco_like.events import AbstractCallback, Moment, TrainerContext, epoch_is_over
from sonosco_like.metrics import description_of
from sonosco_like.serialization import serializable

TRAINING = "train"
_SHORT = {"word_error_rate": "wer", "character_error_rate": "cer", "sentence_error_rate": "ser"}
_ALWAYS_MEASURED = ("loss", "gradient_norm")  # of both a lower value is better
_OF_AVERAGE = "val_ema_"


def families_of(context: TrainerContext) -> list[str]:
    """The names of the measures without their set of data: the loss, the gradient norm, the metrics of the trainer."""
    return [*_ALWAYS_MEASURED, *(description_of(metric).name for metric in context.metrics)]


def family_and_set(name: str, families: Iterable[str]) -> tuple[str, str] | None:
    """The family and the set of a name: `loss` and `val` for `val_loss`, `loss` and `train` for `loss`; or None."""
    behind = [family for family in families if name == family or name.endswith(f"_{family}")]
    if not behind or "/" in name:
        return None
    family = max(behind, key=len)
    return family, name.removesuffix(family).rstrip("_") or TRAINING


def short_name(name: str) -> str:
    """The usual abbreviation of a measure: `val_wer` for `val_word_error_rate`."""
    for long, short in _SHORT.items():
        if name.endswith(long):
            return name.removesuffix(long) + short
    return name


def tag_of(name: str, families: Iterable[str]) -> str:
    """The name of a curve that groups it with its family: `loss/train`, `loss/val`, `wer/val`."""
    found = family_and_set(name, families)
    return name if found is None else f"{short_name(found[0])}/{found[1]}"


def is_rate(name: str) -> bool:
    """Whether a measure is an error rate, which is shown in percent."""
    return name.endswith(tuple(_SHORT))


def format_value(name: str, value: Any) -> str:
    """A value as text: error rates in percent, other numbers with four digits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if is_rate(name):
        return f"{100 * value:.1f} %"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def lower_is_better(measure: str, context: TrainerContext) -> bool:
    """Whether a lower value of a measure is better, as declared by its metric or by the callback that computes it.

    `val_word_error_rate` and `val_clean_word_error_rate` both have the direction of the metric `word_error_rate`.
    Raises UsageError if neither the trainer nor a callback computes such a measure.
    """
    given = callback_measures(context)
    if measure in given:
        return given[measure]
    directions = {described.name: described.lower_is_better for described in map(description_of, context.metrics)}
    directions |= dict.fromkeys(_ALWAYS_MEASURED, True)
    behind = [name for name in directions if measure == name or measure.endswith(f"_{name}")]
    if not behind:
        known = ", ".join(sorted(directions))
        raise UsageError(
            f"Whether a lower `{measure}` is better is not known: the trainer has no metric of that name"
            f"{did_you_mean(measure, directions) or '.'} It has {known}."
        )
    return directions[max(behind, key=len)]


def monitored_weights(measure: str, context: TrainerContext) -> Literal["", "plain", "averaged"]:
    """Which weights a measure is of: plain or averaged; empty if the trainer keeps no average of the weights."""
    if getattr(context, "averaging", None) is None:
        return ""
    of_a_set = any(name and measure.startswith(f"val_{name}_") for name in context.validation_sets)
    return "averaged" if measure.startswith(_OF_AVERAGE) and not of_a_set else "plain"


def callback_measures(context: TrainerContext) -> dict[str, bool]:
    """The measures that callbacks compute, and whether a lower value is better."""
    callbacks = (callback for callback in context.callbacks if hasattr(callback, "measures_given"))
    return {name: lower for callback in callbacks for name, lower in callback.measures_given().items()}


def improves(value: float, than: float | None, lower: bool, min_delta: float = 0.0) -> bool:
    """Whether a value is better than another by more than `min_delta`; any number is better than None and NaN."""
    if value != value:
        return False
    if than is None or than != than:
        return True
    return value < than - min_delta if lower else value > than + min_delta


def is_evaluated_by_validation(measure: str, moment: Moment) -> bool:
    """Whether a measure was computed by the validation that ends here, or by a callback."""
    computed = not isinstance(moment.result, Mapping) or measure in moment.result
    given = measure in callback_measures(moment.context)
    return _is_of_validation(measure) and moment.error is None and (computed or given)


def is_evaluated_by_epoch(measure: str, moment: Moment) -> bool:
    """Whether a measure of the training is evaluated now, at the end of a complete epoch."""
    return not _is_of_validation(measure) and epoch_is_over(moment)


def _is_of_validation(measure: str) -> bool:
    return measure.startswith("val_")


@serializable
class FollowsMeasure(AbstractCallback, ABC):
    """Follows the measure `monitor` from evaluation to evaluation.

    A measure of the validation (`val_...`) is evaluated by every complete validation, a measure of the training by
    every complete epoch.
    """

    monitor: str = "val_loss"

    @abstractmethod
    def update(self, value: float, context: TrainerContext) -> None:
        """Use a new value of the measure; called at each evaluation."""

    def measures_needed(self) -> Iterable[str]:
        """The measure that the callback follows."""
        return (self.monitor,)

    def on_validation_end(self, moment: Moment) -> None:
        """Evaluate a measure of the validation."""
        if is_evaluated_by_validation(self.monitor, moment):
            self._evaluate(moment.context)

    def on_epoch_end(self, moment: Moment) -> None:
        """Evaluate a measure of the training."""
        if is_evaluated_by_epoch(self.monitor, moment):
            self._evaluate(moment.context)

    def _evaluate(self, context: TrainerContext) -> None:
        value = context.performance_measures.get(self.monitor)
        if value is not None:
            self.update(value, context)

"""Which way is better: the direction of a measure is declared by whoever computes it, never guessed from its name."""

from __future__ import annotations

from typing import Any, Literal

from sonosco_like.errors import UsageError, did_you_mean
from sonosco_like.metrics import describe

_OF_AVERAGE = "val_ema_"
_LOWER_WITHOUT_METRIC = ("loss", "gradient_norm")


def lower_is_better(measure: str, context: Any) -> bool:
    """Whether a lower value of a measure is better, as the metric behind it says, or the callback that gives it.

    `val_word_error_rate` is the metric `word_error_rate`; so is that of a validation set with a name of its own.
    Raises UsageError if nobody computes such a measure.
    """
    given = given_by_callbacks(context)
    if measure in given:
        return given[measure]
    directions = {described.name: described.lower_is_better for described in map(describe, context.metrics)}
    directions |= dict.fromkeys(_LOWER_WITHOUT_METRIC, True)
    behind = [name for name in directions if measure == name or measure.endswith(f"_{name}")]
    if not behind:
        known = ", ".join(sorted(directions))
        raise UsageError(
            f"Whether a lower `{measure}` is better is not known: the trainer has no metric of that name"
            f"{did_you_mean(measure, directions) or '.'} It has {known}."
        )
    return directions[max(behind, key=len)]


def judged_by(measure: str, context: Any) -> Literal["", "plain", "averaged"]:
    """Which weights a measure judges, if the trainer keeps an average beside them; nothing if it keeps none."""
    if getattr(context, "averaging", None) is None:
        return ""
    of_a_set = any(name and measure.startswith(f"val_{name}_") for name in context.validation_sets)
    return "averaged" if measure.startswith(_OF_AVERAGE) and not of_a_set else "plain"


def given_by_callbacks(context: Any) -> dict[str, bool]:
    """The measures that callbacks put beside those of the trainer, and whether lower is better."""
    callbacks = (callback for callback in context.callbacks if hasattr(callback, "measures_given"))
    return {name: lower for callback in callbacks for name, lower in callback.measures_given().items()}


def improves(value: float, than: float | None, lower: bool, min_delta: float = 0.0) -> bool:
    """Whether a value is better than another by more than `min_delta`; any number is better than none and than NaN."""
    if value != value:
        return False
    if than is None or than != than:
        return True
    return value < than - min_delta if lower else value > than + min_delta

"""Callbacks that end a training: because it is good enough, because it no longer improves, or because it is lost."""

from __future__ import annotations

import logging
import math
from typing import Any

from torch import Tensor

from sonosco_like.callbacks.directions import improves, lower_is_better
from sonosco_like.callbacks.watching import Watcher
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment, Stop
from sonosco_like.metrics import Judged, needs_of
from sonosco_like.serialization import serializable, state

logger = logging.getLogger(__name__)


@serializable
class EarlyStopping(Watcher):
    """Ends the training when the measure `monitor` no longer improves.

    An evaluation improves if it is better than the best one so far by more than `min_delta`; which way is better is
    declared by the metric. After `patience` evaluations in a row that do not, the training stops. A number that is not
    finite never improves.
    """

    min_delta: float = 0.0
    patience: int = 5
    best: float | None = state(None)
    best_step: int = state(0)
    waited: int = state(0)

    def __post_init__(self) -> None:
        if self.patience < 1 or self.min_delta < 0:
            raise UsageError(
                f"`patience` must be at least 1 evaluation and `min_delta` not negative, "
                f"got {self.patience} and {self.min_delta}."
            )

    def evaluated(self, value: float, context: Any) -> None:
        """Count evaluations without an improvement."""
        if improves(value, self.best, lower_is_better(self.monitor, context), self.min_delta):
            self.best, self.best_step, self.waited = value, context.global_step, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            raise Stop(self._reason())

    def on_training_start(self, moment: Moment) -> None:
        """A run that was stopped stays so when it is resumed, unless its patience is greater now."""
        if self.waited >= self.patience:
            moment.context.stop_training(f"{self._reason()}; to train on, set a greater `patience`")

    def _reason(self) -> str:
        best = "never was a number" if self.best is None else f"was best at step {self.best_step}: {self.best:.6g}"
        return f"{self.monitor} {best}, and has not improved in {self.waited} evaluations since"


@serializable
class ThresholdStopper(Watcher):
    """Ends the training when the measure `monitor` is as good as `threshold`, or better.

    Which way is better is declared by the metric.
    """

    threshold: float = 0.0

    def evaluated(self, value: float, context: Any) -> None:
        """Compare with the threshold, in the direction of the metric."""
        if self._is_reached(value, context):
            raise Stop(self._reason(value))

    def on_training_start(self, moment: Moment) -> None:
        """A run that was stopped stays so when it is resumed, unless the threshold is another now."""
        context = moment.context
        evaluated = self.monitor.startswith("val_") or context.batches_done == 0  # not the average of half an epoch
        value = context.performance_measures.get(self.monitor) if evaluated else None
        if value is not None and self._is_reached(value, context):
            context.stop_training(f"{self._reason(value)}; to train on, set another `threshold`")

    def _is_reached(self, value: float, context: Any) -> bool:
        return value <= self.threshold if lower_is_better(self.monitor, context) else value >= self.threshold

    def _reason(self, value: float) -> str:
        return f"{self.monitor} is {value:.6g} and so has reached the threshold {self.threshold:g}"


@serializable
class TerminateOnNaN(AbstractCallback):
    """Ends the training when the loss of a batch is NaN or infinite, before that loss can reach the weights.

    The utterances of the batch are named. Looking at the loss of every batch waits for the device. It hears after
    callbacks of a lower `order`, which may replace a loss.
    """

    order: int = 100

    def on_loss_end(self, moment: Moment) -> None:
        """Look at the loss of this batch."""
        if moment.error is not None:
            return
        loss = float(moment.result.detach())
        if not math.isfinite(loss):
            raise Stop(f"the loss is {loss} on {_whose(moment.args.get('batch'))}")


@serializable
class AllPredictionsSame(AbstractCallback):
    """Ends the training when the model has collapsed: all it hears in a whole validation is one text, or nothing.

    Many recognisers hear nothing at all in their first validations, so it takes `patience` such validations in a row.
    With `stop: false` it warns each time instead of stopping. It reads what was decoded for a metric of the trainer.
    Without a decoder it compares what the model predicts for each example: the class of highest score, or what the
    trainer's `predict_batch` makes of the output.
    """

    patience: int = 5
    stop: bool = True
    in_a_row: int = state(0)

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise UsageError(f"`patience` must be at least 1 validation, got {self.patience}.")
        self._forget()

    def on_attach(self, moment: Moment) -> None:
        """Refuse a run in which nothing is predicted, or nothing decoded though it could be."""
        context = moment.context
        if context.val_data_loader is not None and "hypotheses" in needs_of(context.metrics):
            return
        if context.decoder is not None:
            raise UsageError(
                "AllPredictionsSame reads decoded text, and this run decodes none: "
                "give the trainer a `val_data_loader` and a metric that reads text, such as word_error_rate."
            )
        if context.val_data_loader is None:
            raise UsageError(
                "AllPredictionsSame reads what a validation predicts: the trainer needs a val_data_loader."
            )

    def on_training_start(self, moment: Moment) -> None:
        """A run that was stopped stays so when it is resumed, unless its patience is greater now."""
        if self.stop and self.in_a_row >= self.patience:
            moment.context.stop_training(
                f"all that the model heard was one text, in {self.in_a_row} validations in a row"
            )

    def on_validation_start(self, moment: Moment) -> None:
        """Begin with no texts."""
        self._forget()

    def on_validation_batch_start(self, moment: Moment) -> None:
        """What is predicted now is for the validation, and not for somebody who evaluates on the side."""
        self._validating = True

    def on_prediction_end(self, moment: Moment) -> None:
        """Take in the texts of one batch."""
        if not self._validating:
            return
        judged = moment.result
        if not isinstance(judged, Judged):
            judged = Judged(moment.args["batch"], moment.args["output"], predicted=judged)
        if judged.hypothesis_texts is not None:
            heard, said = list(judged.hypotheses), list(judged.references)
        else:
            heard, said = ([_in_words(each) for each in part] for part in judged.examples)
        self._heard.update(heard)
        self._said.update(said)
        self._validating = False

    def on_validation_end(self, moment: Moment) -> None:
        """Judge the texts of the whole validation; where all utterances say the same, one text is right."""
        if moment.error is not None or not self._said:
            return
        same = self._heard == {""} or (len(self._heard - {""}) <= 1 and len(self._said) > 1)
        text = max(self._heard)
        self._forget()
        self.in_a_row = self.in_a_row + 1 if same else 0
        if self.in_a_row >= self.patience:
            self._act(f"all that the model hears is {text!r}, in {self.in_a_row} validations in a row")

    def _act(self, finding: str) -> None:
        if self.stop:
            raise Stop(finding)
        logger.warning("Collapsed: %s.", finding)

    def _forget(self) -> None:
        self._validating = False
        self._heard: set[str] = set()
        self._said: set[str] = set()


def _in_words(prediction: Any) -> str:
    """A prediction as a text that can be compared: the class of highest score where there are scores."""
    if (
        isinstance(prediction, Tensor)
        and prediction.is_floating_point()
        and prediction.dim()
        and prediction.numel() > 1
    ):
        return str(prediction.argmax(-1).tolist())
    return str(prediction.tolist() if isinstance(prediction, Tensor) else prediction)


def _whose(batch: Any) -> str:
    """The utterances of a batch, for messages."""
    ids = getattr(batch, "ids", None)
    return f"the utterances {', '.join(ids)}" if ids else "this batch"

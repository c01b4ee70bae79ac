"""Callbacks that end a training, an epoch or a validation early."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch import Tensor

from sonosco_like.callbacks.measures import FollowsMeasure, improves, lower_is_better
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment, Stop, TrainerContext
from sonosco_like.metrics import DecodedBatch, needs_of
from sonosco_like.serialization import serializable, state

logger = logging.getLogger(__name__)


@serializable
class EarlyStopping(FollowsMeasure):
    """Ends the training when the measure `monitor` no longer improves.

    An evaluation improves if it is better than the best one so far by more than `min_delta`; the metric declares which
    direction is better. The training stops after `patience` evaluations in a row without an improvement. NaN is never
    an improvement.
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

    def update(self, value: float, context: TrainerContext) -> None:
        """Count evaluations without an improvement."""
        if improves(value, self.best, lower_is_better(self.monitor, context), self.min_delta):
            self.best, self.best_step, self.waited = value, context.global_step, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            raise Stop(self._reason())

    def on_training_start(self, moment: Moment) -> None:
        """If this callback stopped the run, stop it again when it is resumed, unless its patience was raised."""
        if self.waited >= self.patience:
            moment.context.stop_training(f"{self._reason()}; to train on, set a greater `patience`")

    def _reason(self) -> str:
        best = "never was a number" if self.best is None else f"was best at step {self.best_step}: {self.best:.6g}"
        return f"{self.monitor} {best}, and has not improved in {self.waited} evaluations since"


@serializable
class ThresholdStopper(FollowsMeasure):
    """Ends the training when the measure `monitor` is as good as `threshold`, or better.

    The metric declares which direction is better.
    """

    threshold: float = 0.0

    def update(self, value: float, context: TrainerContext) -> None:
        """Compare with the threshold, in the direction of the metric."""
        if self._is_reached(value, context):
            raise Stop(self._reason(value))

    def on_training_start(self, moment: Moment) -> None:
        """If this callback stopped the run, stop it again when it is resumed, unless the threshold was changed."""
        context = moment.context
        evaluated = self.monitor.startswith("val_") or context.batches_done == 0  # not the average of half an epoch
        value = context.performance_measures.get(self.monitor) if evaluated else None
        if value is not None and self._is_reached(value, context):
            context.stop_training(f"{self._reason(value)}; to train on, set another `threshold`")

    def _is_reached(self, value: float, context: TrainerContext) -> bool:
        return value <= self.threshold if lower_is_better(self.monitor, context) else value >= self.threshold

    def _reason(self, value: float) -> str:
        return f"{self.monitor} is {value:.6g} and so has reached the threshold {self.threshold:g}"


@serializable
class TerminateOnNaN(AbstractCallback):
    """Ends the training when the loss of a batch is NaN or infinite, before that loss can reach the weights.

    The message names the utterances of the batch. Reading the loss of every batch waits for the device. This callback
    is called after callbacks with a lower `order`, which may replace a loss.
    """

    order: int = 100

    def on_loss_end(self, moment: Moment) -> None:
        """Check the loss of this batch."""
        if moment.error is not None:
            return
        loss = float(moment.result.detach())
        if not math.isfinite(loss):
            raise Stop(f"the loss is {loss} on {_name_utterances(moment.args.get('batch'))}")


@serializable
class AllPredictionsSame(AbstractCallback):
    """Ends the training when the model has collapsed: it predicts one text, or none, for a whole validation.

    Many recognisers predict only empty texts in their first validations, so the training ends after `patience` such
    validations in a row. With `stop: false` there is a warning each time, and the training continues. The callback
    reads the texts that are decoded for a metric of the trainer. Without a decoder it compares the prediction for each
    example: the class with the highest score, or the result of the trainer's `predict_batch`.
    """

    patience: int = 5
    stop: bool = True
    in_a_row: int = state(0)

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise UsageError(f"`patience` must be at least 1 validation, got {self.patience}.")
        self._clear_texts()

    def on_attach(self, moment: Moment) -> None:
        """Refuse a run without a validation, and a run with a decoder in which no metric reads text."""
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
                "AllPredictionsSame reads the predictions of a validation: give the trainer a `val_data_loader`."
            )

    def on_training_start(self, moment: Moment) -> None:
        """If this callback stopped the run, stop it again when it is resumed, unless its patience was raised."""
        if self.stop and self.in_a_row >= self.patience:
            moment.context.stop_training(f"the model predicted only one text in {self.in_a_row} validations in a row")

    def on_validation_start(self, moment: Moment) -> None:
        """Clear the texts of the last validation."""
        self._clear_texts()

    def on_validation_batch_start(self, moment: Moment) -> None:
        """Expect a prediction of the validation; other evaluations may predict too."""
        self._validating = True

    def on_prediction_end(self, moment: Moment) -> None:
        """Collect the texts of one batch."""
        if not self._validating:
            return
        decoded = moment.result
        if not isinstance(decoded, DecodedBatch):
            decoded = DecodedBatch(moment.args["batch"], moment.args["output"], predicted=decoded)
        if decoded.hypothesis_texts is not None:
            hypotheses, references = list(decoded.hypotheses), list(decoded.references)
        else:
            hypotheses, references = ([_prediction_text(each) for each in part] for part in decoded.examples)
        self._hypotheses.update(hypotheses)
        self._references.update(references)
        self._validating = False

    def on_validation_end(self, moment: Moment) -> None:
        """Check the texts of the whole validation; one text is correct if all references are equal."""
        if moment.error is not None or not self._references:
            return
        same = self._hypotheses == {""} or (len(self._hypotheses - {""}) <= 1 and len(self._references) > 1)
        text = max(self._hypotheses)
        self._clear_texts()
        self.in_a_row = self.in_a_row + 1 if same else 0
        if self.in_a_row >= self.patience:
            self._act(f"the model predicts only {text!r} in {self.in_a_row} validations in a row")

    def _act(self, finding: str) -> None:
        if self.stop:
            raise Stop(finding)
        logger.warning("Collapsed: %s.", finding)

    def _clear_texts(self) -> None:
        self._validating = False
        self._hypotheses: set[str] = set()
        self._references: set[str] = set()


def _prediction_text(prediction: Any) -> str:
    """A prediction as a text to compare: the class with the highest score if there are scores."""
    if (
        isinstance(prediction, Tensor)
        and prediction.is_floating_point()
        and prediction.dim()
        and prediction.numel() > 1
    ):
        return str(prediction.argmax(-1).tolist())
    return str(prediction.tolist() if isinstance(prediction, Tensor) else prediction)


def _name_utterances(batch: Any) -> str:
    """The utterances of a batch, for messages."""
    ids = getattr(batch, "ids", None)
    return f"the utterances {', '.join(ids)}" if ids else "this batch"


@serializable
class LimitBatches(AbstractCallback):
    """Ends each epoch after `train_batches` batches, and each validation after `validation_batches`; null is no limit.

    A limited epoch ends like any other, with its validation. The next epoch has the same batches as without a limit.
    """

    train_batches: int | None = 10
    validation_batches: int | None = 10

    def __post_init__(self) -> None:
        for name in ("train_batches", "validation_batches"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise UsageError(f"`{name}` must be at least 1 batch, or null for no limit, got {limit}.")

    def epoch_limit(self) -> int | None:
        """The number of batches of every epoch; the time left and `0.1dur` are computed with it."""
        return self.train_batches

    def on_fetch_start(self, moment: Moment) -> None:
        """Give no batch after the last one."""
        if self.train_batches is not None and moment.context.batches_done >= self.train_batches:
            moment.args["batches"] = iter(())

    def on_validation_start(self, moment: Moment) -> None:
        """Limit the loader of the validation."""
        if self.validation_batches is not None:
            moment.args["loader"] = _Beginning(moment.args["loader"], self.validation_batches)


class _Beginning:
    """A loader that ends early; all else is delegated to the original loader."""

    def __init__(self, loader: Any, batches: int) -> None:
        self._loader = loader
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._loader), self._batches)

    def __len__(self) -> int:
        return min(len(self._loader), self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

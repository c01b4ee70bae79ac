"""The evaluation of a model on data that it is not trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.events import AbstractCallback
from sonosco_like.metrics import (
    DecodedBatch,
    Need,
    RunningMeasures,
    Sums,
    description_of,
    measure,
    needs_of,
    teacher_forced_texts,
)
from sonosco_like.records import Prediction
from sonosco_like.training.batches import closed, to_device, weighing_of
from sonosco_like.training.calling import check_loss
from sonosco_like.training.measures import validation_prefix


class Validator:
    """Evaluates the model of a trainer. It owns the predictions of this step: each is computed once for all who ask.

    The stages (`forward`, `compute_loss`, `predict_batch`, `validate_batch`) are methods of the trainer, so that they
    can be heard and overridden.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._predictions: list[tuple[Any, list[Prediction]]] = []
        self._training_metrics: list[Callable[..., Any]] = []
        self._weighed_loss: Any = None
        self._weigh = weighing_of(None)

    def use_metrics(self, metrics: list[Callable[..., Any]]) -> None:
        """Use these metrics; for batches of the training, only those that need no decoding."""
        self._training_metrics = [metric for metric in metrics if not description_of(metric).needs]

    def forget_predictions(self) -> None:
        """Drop the predictions, because the weights or the step changed."""
        if self._predictions:
            self._predictions = []

    def weight_of(self, batch: Any) -> Tensor | float:
        """What the mean loss of a batch was taken over; how to tell is found out once for each loss."""
        loss = self._trainer.loss
        if loss is not self._weighed_loss:
            self._weighed_loss, self._weigh = loss, weighing_of(loss)
        return self._weigh(batch)

    def measure_training(self, output: Any, batch: Any) -> dict[str, Sums]:
        """The sums of the metrics of a batch of the training."""
        if not self._training_metrics:
            return {}
        with torch.no_grad():
            return measure(self._training_metrics, DecodedBatch(batch, output))

    def evaluate(self, loader: Any, evaluate_batch: Callable[[Any], dict[str, Sums]] | None = None) -> RunningMeasures:
        """Loss and metrics on the data of a loader, whose position does not change."""
        trainer, found = self._trainer, RunningMeasures()
        evaluate_batch = evaluate_batch or self.evaluate_unheard
        with self._opened(loader) as batches:
            for batch in batches:
                for name, sums in evaluate_batch(batch).items():
                    found.add(name, sums)
        if trainer.processes.size > 1:
            found.all_reduce(trainer.processes.sum, trainer.parts.device)
        return found

    def validate(self, loader: Any, name: str | None) -> dict[str, float]:
        """The measures of one validation set, which are current from now on; of averaged weights too, if there are."""
        trainer, measures = self._trainer, self._trainer.performance_measures
        trainer.observations.begin_validation()
        found = self.evaluate(loader, trainer.validate_batch)
        results: dict[str, float] = measures.replace_validation(validation_prefix(name), found)
        if trainer.averaging is not None and trainer.averaging.weights:
            with trainer.averaging.applied(trainer.parts.model):
                averaged = self.evaluate(loader)
            results |= measures.replace_validation(validation_prefix(name, averaged=True), averaged)
        trainer.observations.end_validation()
        return results

    def predict(self, loader: Any) -> list[Prediction]:
        """The prediction for each example of a loader; computed once for each step."""
        trainer = self._trainer
        loader = trainer.parts.loaders.find(loader)
        for known, predictions in self._predictions:
            if known is loader:
                return predictions
        needs: set[Need] = {"hypotheses"} if trainer.decoder is not None else set()
        found: list[Prediction] = []
        with self._opened(loader) as batches:
            for batch in batches:
                with trainer.parts.autocast(), trainer.listeners.muted():
                    output = trainer.forward(batch)
                made = trainer.predict_batch(output, batch, needs)
                found += _predictions_of(_as_decoded(made, output, batch), len(found))
        self._predictions.append((loader, found))
        return found

    def evaluate_heard(self, batch: Any) -> dict[str, Sums]:
        """The sums of the measures of one batch of a validation, with the event of the prediction."""
        output, found = self._loss_of(batch)
        needs = needs_of(self._trainer.metrics) | self._needs_of_callbacks()
        made = self._trainer.predict_batch(output, batch, needs)
        self._trainer.observations.add_texts(made)
        return {**found, **self._measure(made, output, batch)}

    def evaluate_unheard(self, batch: Any) -> dict[str, Sums]:
        """The same without the event of the prediction."""
        output, found = self._loss_of(batch)
        with self._trainer.listeners.muted():
            made = self._trainer.predict_batch(output, batch, needs_of(self._trainer.metrics))
        return {**found, **self._measure(made, output, batch)}

    def decode(self, output: Any, batch: Any, needs: Set[Need]) -> DecodedBatch:
        """The texts of a batch, as far as they are needed."""
        trainer = self._trainer
        hypotheses = forced = None
        if "hypotheses" in needs:
            found = trainer.decoder.decode(output, trainer.vocabulary, model=trainer.model)
            hypotheses = [n_best[0] for n_best in found]
        if "teacher_forced" in needs:
            forced = teacher_forced_texts(output, batch, trainer.vocabulary.decode)
        texts = [hypothesis.text for hypothesis in hypotheses] if hypotheses is not None else None
        return DecodedBatch(batch, output, texts, forced, hypotheses)

    @contextmanager
    def _opened(self, loader: Any) -> Iterator[Iterator[Any]]:
        """The batches of a loader from the first one on, with the model in evaluation mode."""
        parts = self._trainer.parts
        loader = parts.loaders.find(loader)
        with evaluation_mode(parts.model), rewound(loader), closed(parts.loaders.batches(loader, 0)) as batches:
            yield (to_device(batch, parts.device) for batch in batches)

    def _loss_of(self, batch: Any) -> tuple[Any, dict[str, Sums]]:
        trainer = self._trainer
        with trainer.parts.autocast(), trainer.listeners.muted():
            output = trainer.forward(batch)
            loss = trainer.compute_loss(output, batch)
        check_loss(loss, learning=False)
        return output, {"loss": Sums.of_mean(loss, self.weight_of(batch))}

    def _measure(self, made: Any, output: Any, batch: Any) -> dict[str, Sums]:
        return measure(self._trainer.metrics, _as_decoded(made, output, batch))

    def _needs_of_callbacks(self) -> set[Need]:
        callbacks = (each for each in self._trainer.callbacks if isinstance(each, AbstractCallback))
        return {need for callback in callbacks for need in callback.texts_needed()}


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """The model without dropout and without gradients inside the block; afterwards each part has its former mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def rewound(loader: Any) -> Iterator[Any]:
    """A loader at its first batch inside the block; afterwards at its former position."""
    place = loader.state_dict() if hasattr(loader, "state_dict") else None
    if hasattr(loader, "seek"):
        loader.seek(0)
    elif hasattr(loader, "rewind"):
        loader.rewind()
    try:
        yield loader
    finally:
        if place is not None:
            loader.load_state_dict(place)


def _as_decoded(made: Any, output: Any, batch: Any) -> DecodedBatch:
    """The result of `predict_batch` in the form that metrics read."""
    return made if isinstance(made, DecodedBatch) else DecodedBatch(batch, output, predicted=made)


def _predictions_of(decoded: DecodedBatch, first: int) -> list[Prediction]:
    """A prediction for each example of a batch, numbered from `first` on where they have no ids."""
    if decoded.hypothesis_texts is not None:
        rows = zip(decoded.batch.ids, decoded.references, decoded.hypotheses, strict=True)
        return [Prediction(*row) for row in rows]
    made, targets = decoded.examples
    ids = getattr(decoded.batch, "ids", None) or [str(first + number) for number in range(len(made))]
    return [Prediction(*row) for row in zip(ids, targets, made, strict=True)]

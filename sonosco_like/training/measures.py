"""The measures for callbacks: running averages of the training, and the evaluation of the model on other data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.events import AbstractCallback, Listeners
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
from sonosco_like.training.batches import check_loss, closed, to_device, weighing_of
from sonosco_like.training.processes import Processes

VALIDATION = "val_"
AVERAGED = "ema_"
GRADIENT_NORM = "gradient_norm"
_WHERE_READ = ("batch_end", "validation_end", "epoch_end", "log")  # events at which callbacks read averages


def validation_prefix(name: str | None, averaged: bool = False) -> str:
    """The prefix of the measures of a validation set: `val_`, `val_<name>_`, `val_ema_` for the averaged weights."""
    return VALIDATION + (AVERAGED if averaged else "") + (f"{name}_" if name else "")


def _may_read(listener: Any, measure: str) -> bool:
    """Whether a listener may read a measure: `measures_needed` names it, or is not overridden."""
    declares = getattr(type(listener), "measures_needed", None) not in (None, AbstractCallback.measures_needed)
    return measure in listener.measures_needed() if declares else True


class PerformanceMeasures(Mapping[str, float]):
    """`loss`, `gradient_norm`, `<metric>` of this epoch so far; `val_loss`, `val_<metric>` of the last validation.

    Further measures are what callbacks put in with `update_metric`. Numbers are computed when they are read. Reading
    waits for the device; not reading never does.
    """

    def __init__(self) -> None:
        self.training = RunningMeasures()
        self.validation: dict[str, RunningMeasures] = {}
        self.further: dict[str, float] = {}
        self._hooks_seen: Any = None
        self._norm_is_read = False

    def add_batch(
        self,
        loss: Tensor | float,
        weight: Tensor | float,
        measured: Mapping[str, Sums],
        processes: Processes,
        device: torch.device,
    ) -> None:
        """Add a batch of the training to the averages; with several processes, the batches of all."""
        is_alone = processes.size == 1
        running = self.training if is_alone else RunningMeasures()
        running.add_mean("loss", loss, weight)
        if measured:
            for name, sums in measured.items():
                running.add(name, sums)
        if not is_alone:
            running.all_reduce(processes.sum, device)
            self.training.merge(running)

    def add_gradient_norm(self, norm: Tensor | None) -> None:
        """Add the norm of the gradients of a step to its average, if it was measured."""
        if norm is not None:
            self.training.add_mean(GRADIENT_NORM, norm, 1.0)

    def norm_is_read(self, listeners: Listeners) -> bool:
        """Whether a callback reads the norm of the gradients: it names it in `measures_needed`, or names nothing."""
        if listeners.hooks is not self._hooks_seen:
            self._hooks_seen = listeners.hooks
            owners = {id(hook.owner): hook.owner for event in _WHERE_READ for hook in listeners.hooks.get(event, ())}
            self._norm_is_read = any(_may_read(owner, GRADIENT_NORM) for owner in owners.values())
        return self._norm_is_read

    def replace_validation(self, prefix: str, found: RunningMeasures) -> dict[str, float]:
        """Replace the results of the last validation by those of a new one, and return them by name."""
        self.validation[prefix] = found
        return {prefix + name: value for name, value in found.items()}

    def update_metric(self, name: str, value: float) -> None:
        """Set a measure that a callback computed; it stays until it is set again."""
        self.further[name] = float(value)

    def __getitem__(self, name: str) -> float:
        if name in self.further:
            return self.further[name]
        for prefix, found in self.validation.items():
            if name.startswith(prefix) and name.removeprefix(prefix) in found:
                return found[name.removeprefix(prefix)]
        return self.training[name]

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self.training if name not in self.further)
        for prefix, found in self.validation.items():
            yield from (prefix + name for name in found if prefix + name not in self.further)
        yield from self.further

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name}: {value:.6g}' for name, value in self.items())}}}"

    def remember_state(self) -> Callable[[], None]:
        """A function that restores the present averages."""
        training, validation, further = self.training.remember_state(), dict(self.validation), dict(self.further)

        def restore() -> None:
            training()
            self.validation, self.further = dict(validation), dict(further)

        return restore

    def state_dict(self) -> dict[str, Any]:
        """The sums of all averages."""
        validation = {prefix: found.state_dict() for prefix, found in self.validation.items()}
        return {"training": self.training.state_dict(), "validation": validation, "further": dict(self.further)}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue from sums that were saved."""
        self.training.load_state_dict(content["training"])
        self.validation = {prefix: RunningMeasures() for prefix in content["validation"]}
        for prefix, found in self.validation.items():
            found.load_state_dict(content["validation"][prefix])
        self.further = dict(content["further"])


class Validator:
    """Evaluates the model of a trainer. It owns the predictions of this step: each is computed once for all who ask.

    The stages (`forward`, `compute_loss`, `predict_batch`, `validate_batch`) are methods of the trainer, so that they
    can have listeners and be overridden.
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
        """What the mean loss of a batch was taken over; the way to find it is chosen once for each loss."""
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

    def evaluate(self, loader: Any, measure_batch: Callable[[Any], dict[str, Sums]] | None = None) -> RunningMeasures:
        """Loss and metrics on the data of a loader, whose position does not change."""
        trainer, found = self._trainer, RunningMeasures()
        measure_batch = measure_batch or self.evaluate_batch
        with self._opened(loader) as batches:
            for batch in batches:
                for name, sums in measure_batch(batch).items():
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
        trainer.observations.end_validation(results)
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

    def validate_batch(self, batch: Any) -> dict[str, Sums]:
        """The sums of the measures of one batch of a validation, with the event of the prediction."""
        output, found = self._loss_of(batch)
        needs = needs_of(self._trainer.metrics) | self._needs_of_callbacks()
        made = self._trainer.predict_batch(output, batch, needs)
        self._trainer.observations.add_texts(made)
        return {**found, **self._measure(made, output, batch)}

    def evaluate_batch(self, batch: Any) -> dict[str, Sums]:
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

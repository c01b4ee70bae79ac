"""How a trainer judges its model on data it does not learn from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Duration, Stop, stage
from sonosco_like.metrics import Judged, Need, RunningMeasures, Sums, measure, needs_of, teacher_forced_texts
from sonosco_like.training.batches import to_device, weight_of
from sonosco_like.training.calling import check_loss
from sonosco_like.training.judging import Prediction, as_judged, from_the_beginning, judging, predictions_of
from sonosco_like.training.measures import validation_prefix
from sonosco_like.training.parts import TrainerParts

_PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Validating(TrainerParts, ABC):
    """The part of ModelTrainer that judges."""

    def evaluate(self, loader: Any) -> dict[str, float]:
        """Loss and metrics on the data of a loader. Measures, validations and the loader's place stay as they are."""
        return dict(self._judge(loader, self._judge_batch))

    def predict(self, loader: Any) -> list[Prediction]:
        """What the model makes of each example of a loader: a text if there is a decoder, else its output, or what
        `predict_batch` makes of that. It is computed once for all who ask at this step.
        """
        loader = self._loaders.find(loader)
        for known, predictions in self._predictions:
            if known is loader:
                return predictions
        needs: set[Need] = {"hypotheses"} if self.decoder is not None else set()
        found: list[Prediction] = []
        with judging(self.model), from_the_beginning(loader):
            for batch in self._loaders.batches(loader, 0):
                batch = to_device(batch, self._device)
                with self._autocast(), self._unheard():
                    output = self.forward(batch)
                made = self.predict_batch(output, batch, needs)
                found += predictions_of(as_judged(made, output, batch), len(found))
        self._predictions.append((loader, found))
        return found

    def judging(self) -> AbstractContextManager[None]:
        """The model as it is while it is judged: without dropout and without learning; afterwards as it was."""
        return judging(self.model)

    @property
    def vocabulary(self) -> Any:
        """The tokenizer of the data, which turns labels into text."""
        if self._vocabulary is None:
            self._vocabulary = self.build_tokenizer()
        if self._vocabulary is not None:
            return self._vocabulary
        raise UsageError("A metric reads decoded text, but no data loader has a tokenizer to make text of labels.")

    @property
    def validation_sets(self) -> dict[str | None, Any]:
        """The loaders of validation data by name; a single one has none."""
        if isinstance(self.val_data_loader, dict):
            return dict(self.val_data_loader)
        return {} if self.val_data_loader is None else {None: self.val_data_loader}

    @abstractmethod
    def forward(self, batch: Any) -> Any:
        """What the model makes of a batch."""

    @abstractmethod
    def compute_loss(self, output: Any, batch: Any) -> Tensor:
        """How far that is from what it should be."""

    @abstractmethod
    def build_tokenizer(self) -> Any:
        """The tokenizer of the data, if it has one."""

    def _validate_if_due(self, at_epoch_end: bool = False) -> None:
        if self._validated_at == self.global_step or not self._validation_due(at_epoch_end):
            return
        self._mark_good(settings=True)
        self._validated_at = self.global_step
        try:
            self.processes.share_buffers(self.model)
            for name, loader in self.validation_sets.items():
                self.validate(loader, name)
            self.processes.meet("end of validation")
        except Stop:
            raise  # somebody wanted no more of it, and everybody heard its end
        except Exception:
            self._validated_at = -1  # a run that continues from here tries again
            raise
        self._go_no_more_back()

    def _validation_due(self, at_epoch_end: bool) -> bool:
        every = self._test_interval
        if at_epoch_end:
            return every is None or every.unit != "ep" or (self.epoch + 1) % int(every.value) == 0
        return every is not None and every.unit == "ba" and self.global_step % int(every.value) == 0

    @stage("validation")
    def validate(self, loader: Any, name: str | None) -> dict[str, float]:
        """The measures of one validation set, which are current from now on."""
        found = self._judge(loader, self.validate_batch)
        results = self._take(validation_prefix(name), found)
        if self.averaging is not None and self.averaging.weights:
            with self.averaging.applied(self.model):
                averaged = self._judge(loader, self._judge_batch)
            results |= self._take(validation_prefix(name, averaged=True), averaged)
        return results

    def _take(self, prefix: str, found: RunningMeasures) -> dict[str, float]:
        self.performance_measures.replace_validation(prefix, found)
        return {prefix + name: value for name, value in found.items()}

    @stage("validation_batch")
    def validate_batch(self, batch: Any) -> dict[str, Sums]:
        """The sums behind the measures of one batch."""
        return self._judge_batch(batch, heard=True)

    def _judge(self, loader: Any, judge_batch: Callable[[Any], dict[str, Sums]]) -> RunningMeasures:
        found = RunningMeasures()
        loader = self._loaders.find(loader)
        with judging(self.model), from_the_beginning(loader):
            for batch in self._loaders.batches(loader, 0):
                for name, sums in judge_batch(to_device(batch, self._device)).items():
                    found.add(name, sums)
        if self.processes.size > 1:
            found.all_reduce(self.processes.sum, self._device)
        return found

    def _judge_batch(self, batch: Any, heard: bool = False) -> dict[str, Sums]:
        with self._autocast(), self._unheard():
            output = self.forward(batch)
            loss = self.compute_loss(output, batch)
        check_loss(loss, learning=False)
        found = {"loss": Sums.of_mean(loss, weight_of(self.loss, batch))}
        needs = needs_of(self.metrics)
        if heard:
            made = self.predict_batch(output, batch, needs | self._texts_heard())
        else:
            with self._unheard():
                made = self.predict_batch(output, batch, needs)
        return {**found, **measure(self.metrics, as_judged(made, output, batch))}

    @contextmanager
    def _unheard(self) -> Iterator[None]:
        """Have stages, also those that a user has overridden, do their work without anybody hearing of it."""
        before, self.hooks = self.hooks, {}
        try:
            yield
        finally:
            self.hooks = before

    def _measured(self, output: Any, batch: Any) -> dict[str, Sums]:
        with torch.no_grad():
            return measure(self._cheap_metrics, Judged(batch, output)) if self._cheap_metrics else {}

    def _texts_heard(self) -> set[Need]:
        listening = (callback for callback in self.callbacks if isinstance(callback, AbstractCallback))
        return {need for callback in listening for need in callback.texts_needed()}

    @stage("prediction")
    def predict_batch(self, output: Any, batch: Any, needs: Set[Need]) -> Judged:
        """What was decoded of a batch: the texts that are needed, and nothing else.

        Override it to make something else of outputs, such as `output.argmax(1)`: that is what `predict` then gives,
        and what metrics find in `judged.predictions`.
        """
        return self._decode(output, batch, needs)

    def _decode(self, output: Any, batch: Any, needs: Set[Need]) -> Judged:
        readings = forced = None
        if "hypotheses" in needs:
            found = self.decoder.decode(output, self.vocabulary, model=self.model)
            readings = [utterance[0] for utterance in found]
        if "teacher_forced" in needs:
            forced = teacher_forced_texts(output, batch, self.vocabulary.decode)
        texts = [reading.text for reading in readings] if readings is not None else None
        return Judged(batch, output, texts, forced, readings)

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = _PRECISIONS[self.precision]
        return torch.autocast(self._device.type, dtype) if dtype is not None else nullcontext()


def interval_of(test_step: int | str | None) -> Duration | None:
    """How long it is from one validation to the next; None is to the end of the epoch."""
    if test_step is None:
        return None
    if isinstance(test_step, int) and test_step < 1:
        raise UsageError(f"`test_step` must be at least 1, or null for epoch ends only, got {test_step}.")
    every = Duration.parse(test_step if isinstance(test_step, str) else f"{test_step}ba")
    if every.unit not in ("ba", "ep"):
        raise UsageError(f"`test_step` counts batches (500ba) or epochs (2ep), got {test_step!r}.")
    return every

"""The trainer: epoch, batch, forward, loss, backward, step, in the order in which they happen."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError, did_you_mean
from sonosco_like.events import AbstractCallback, Duration, Event, Hooks, Moment, Stop, fire, listen, stage
from sonosco_like.metrics import Judged, RunningMeasures, Sums, describe, measure, needs_of, teacher_forced_texts
from sonosco_like.optim import AdamW
from sonosco_like.serialization import Snapshot, serializable, state
from sonosco_like.training.batches import describe_batch, inputs_of, targets_of, to_device, weight_of
from sonosco_like.training.judging import Prediction, from_the_beginning, judging
from sonosco_like.training.measures import VALIDATION, PerformanceMeasures
from sonosco_like.training.optimization import Optimization
from sonosco_like.training.randomness import generator_states, restore_generators

logger = logging.getLogger(__name__)

_PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


@serializable
class ModelTrainer:
    """Trains a model on batches and tells its callbacks about it.

    Any `nn.Module` and any iterable of batches will do. Our own models and loaders are saved with the trainer and
    resumed at the exact batch. `test_step` is the number of batches between two validations; a validation also ends
    every epoch. `clip_grads` limits the norm of the gradients, `clip_values` each of them. `epoch` and `step` are those
    under way, both from 0; `global_step` counts the batches done.
    """

    class_callbacks: ClassVar[list[Any]] = []
    events: ClassVar[tuple[str, ...]] = ()

    model: nn.Module
    loss: Callable[..., Any]
    epochs: int
    train_data_loader: Any
    val_data_loader: Any = None
    test_data_loader: Any = None
    decoder: Any = None
    optimizer: Any = field(default_factory=AdamW)
    scheduler: Any = None
    metrics: list[Callable[..., Any]] = field(default_factory=list)
    callbacks: list[Any] = field(default_factory=list)
    device: torch.device | None = None
    clip_grads: float | None = None
    clip_values: float | None = None
    accumulate_gradients: int = 1
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    test_step: int | None = 50
    max_duration: str | None = None
    epoch: int = state(0)
    step: int = state(0)
    global_step: int = state(0)
    batches_done: int = state(0)
    seconds: float = state(0.0)

    def __post_init__(self) -> None:
        for name in ("epochs", "accumulate_gradients"):
            if getattr(self, name) < 1:
                raise UsageError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
        if self.test_step is not None and self.test_step < 1:
            raise UsageError(f"`test_step` must be at least 1, or null for epoch ends only, got {self.test_step}.")
        self.performance_measures = PerformanceMeasures()
        self.experiment: Any = None
        self.hooks: Hooks = {}
        self.seconds_in_callbacks: dict[str, float] = {}
        self._limit = Duration.parse(self.max_duration) if self.max_duration else None
        self._device = self.device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._optimization: Optimization | None = None
        self._original_fields: dict[str, Any] = {}
        self._stop: Stop | None = None
        self._epoch_over = False
        self._fetched = False
        self._checkpoint_asked: Path | Literal[True] | None = None
        self._validated_at = -1
        self._clock = 0.0

    # What users call

    def start_training(self) -> None:
        """Train from the beginning to the end."""
        if self.global_step:
            raise UsageError(f"This trainer is at step {self.global_step} already; call continue_training().")
        self._run()

    def continue_training(self) -> None:
        """Train on from where this trainer is."""
        self._run()

    def stop_training(self, reason: str = "stop_training() was called") -> None:
        """End the training after the batch under way; everybody still hears its end."""
        self._stop = Stop(reason)

    def add_callback(self, callback: Any) -> None:
        """Have one more callback listen, from now on."""
        self.set_callbacks([*self.callbacks, callback])

    def set_callbacks(self, callbacks: list[Any]) -> None:
        """Have these callbacks listen instead of the present ones."""
        self.callbacks = list(callbacks)
        if self.hooks:
            self._listen()

    def add_metric(self, metric: Callable[..., Any]) -> None:
        """Compute one more metric."""
        self.metrics = [*self.metrics, metric]

    def set_metrics(self, metrics: list[Callable[..., Any]]) -> None:
        """Compute these metrics instead of the present ones."""
        self.metrics = list(metrics)

    def save_checkpoint(self, path: str | Path | None = None) -> None:
        """Save the whole trainer once the batch or epoch under way is complete: to `path`, or into the run folder."""
        if path is None and self.experiment is None:
            raise UsageError("There is no run folder to save a checkpoint into; give save_checkpoint a path.")
        self._checkpoint_asked = True if path is None else Path(path)

    def evaluate(self, loader: Any) -> dict[str, float]:
        """Loss and metrics on the data of a loader. Measures, validations and the loader's place stay as they are."""
        return dict(self._judge(loader, self._judge_batch))

    def predict(self, loader: Any) -> list[Prediction]:
        """What the model hears in each utterance of a loader, decoded freely."""
        found = []
        with judging(self.model), from_the_beginning(loader):
            for batch in loader:
                batch = to_device(batch, self._device)
                with self._autocast():
                    output = self.model(inputs_of(batch))
                texts = self.decoder.texts(output, self.vocabulary, model=self.model)
                found += [Prediction(*row) for row in zip(batch.ids, batch.texts, texts, strict=True)]
        return found

    def log(self, values: Mapping[str, Any]) -> None:
        """Hand named values to the callbacks that write them down, as of this step."""
        if Event.LOG.value in self.hooks:
            self.fire(Event.LOG.value, values=dict(values), epoch=self.epoch, step=self.global_step)

    def fire(self, event: str, **args: Any) -> Moment:
        """Let callbacks hear an event that this class names in `events`."""
        moment = Moment(event, self, args)
        fire(self.hooks, moment)
        return moment

    @property
    def vocabulary(self) -> Any:
        """The tokenizer of the data, which turns labels into text."""
        for loader in (self.train_data_loader, self.val_data_loader, self.test_data_loader):
            tokenizer = getattr(getattr(loader, "dataset", None), "tokenizer", None)
            if tokenizer is not None:
                return tokenizer
        raise UsageError("A metric reads decoded text, but no data loader has a tokenizer to make text of labels.")

    # The loop

    def _run(self) -> None:
        self._stop = None
        self._clock = time.monotonic() - self.seconds
        try:
            self._build()
            self._check()
            self._listen()
            self._prepare_data()
            self._train()
        except Stop as stop:  # at `attach`, `training_start` or `training_end`
            self._say_stopped(stop)
        except BaseException as error:
            fire(self.hooks, Moment(Event.ERROR.value, self, error=error))
            raise
        finally:
            self._close_callbacks()

    @stage("training")
    def _train(self) -> None:
        stop: Stop | None = None
        while stop is None and not self._finished():
            self._epoch_over = False
            try:
                self._train_epoch(self.epoch)
            except Stop as raised:
                stop = raised if raised.scope == "training" else None
                self._epoch_over = self._epoch_over or raised.scope == "epoch"
            stop = stop or self._stop
            if self._epoch_over:
                self.epoch, self.step, self.batches_done = self.epoch + 1, 0, 0
            self._write_checkpoint_if_asked()
        if stop is not None:
            self._say_stopped(stop)

    @stage("epoch")
    def _train_epoch(self, epoch: int) -> None:
        if self.batches_done == 0:
            self.performance_measures.training.clear()
        batches = self._batches(epoch)
        while True:
            self.step = self.batches_done
            self._fetched = False
            try:
                batch = self._fetch(batches)
                if batch is None:
                    break
                self._train_batch(batch)
            except Stop as stop:
                if self._fetched and self.batches_done == self.step:  # the batch was handed out, so it is spent
                    self._count_batch()
                if stop.scope != "batch":
                    raise
            if self._stop is not None:
                raise self._stop
            self._write_checkpoint_if_asked()
            if self._limit and self._limit.unit != "ep" and self._limit_reached():
                raise Stop(f"max_duration {self.max_duration} is reached")
        if self._opt.pending:
            self._optimizer_step()
        self._epoch_over = True
        try:
            self._validate_if_due(at_epoch_end=True)
        except Stop as stop:  # the epoch is complete all the same
            self._stop = stop if stop.scope == "training" else None

    @stage("batch")
    def _train_batch(self, batch: Any) -> None:
        batch = to_device(batch, self._device)
        try:
            with self._autocast():
                output = self._forward(batch)
                loss = self._compute_loss(output, batch)
            self._backward(loss)
            if self._opt.pending >= self.accumulate_gradients:
                self._optimizer_step()
        except torch.OutOfMemoryError as error:
            raise UsageError(f"Out of memory on a batch with {describe_batch(batch)}. Make batches smaller.") from error
        self._count_batch()
        self._measure(loss, output, batch)
        self._validate_if_due()

    @stage("fetch")
    def _fetch(self, batches: Iterator[Any]) -> Any:
        batch = next(batches, None)
        self._fetched = batch is not None
        return batch

    @stage("forward")
    def _forward(self, batch: Any) -> Any:
        return self.model(inputs_of(batch))

    @stage("loss")
    def _compute_loss(self, output: Any, batch: Any) -> Tensor:
        loss: Tensor = self.loss(output, targets_of(batch))
        return loss

    @stage("backward")
    def _backward(self, loss: Tensor) -> None:
        self._opt.backward(loss, self.accumulate_gradients)

    @stage("optimizer_step")
    def _optimizer_step(self) -> None:
        self._opt.unscale()
        self._clip_gradients()
        self._opt.step()

    @stage("clip_gradients")
    def _clip_gradients(self) -> None:
        norm = self._opt.clip(self.clip_grads, self.clip_values, measured=bool(self.callbacks))
        if norm is not None:
            self.performance_measures.training.add_mean("gradient_norm", norm, 1.0)

    def _count_batch(self) -> None:
        self.batches_done += 1
        self.global_step += 1
        self.seconds = time.monotonic() - self._clock

    def _measure(self, loss: Tensor, output: Any, batch: Any) -> None:
        running = self.performance_measures.training
        running.add_mean("loss", loss.detach(), weight_of(self.loss, batch))
        cheap = [metric for metric in self.metrics if not describe(metric).needs]
        if cheap:
            with torch.no_grad():
                for name, sums in measure(cheap, Judged(batch, output)).items():
                    running.add(name, sums)

    # Validation

    def _validate_if_due(self, at_epoch_end: bool = False) -> None:
        if self.val_data_loader is None or self._validated_at == self.global_step:
            return
        if at_epoch_end or (self.test_step is not None and self.global_step % self.test_step == 0):
            self._validated_at = self.global_step
            self._validate(self.val_data_loader)

    @stage("validation")
    def _validate(self, loader: Any) -> dict[str, float]:
        found = self._judge(loader, self._validate_batch)
        self.performance_measures.replace_validation(found)
        return {VALIDATION + name: value for name, value in found.items()}

    @stage("validation_batch")
    def _validate_batch(self, batch: Any) -> dict[str, Sums]:
        return self._judge_batch(batch)

    def _judge(self, loader: Any, judge_batch: Callable[[Any], dict[str, Sums]]) -> RunningMeasures:
        found = RunningMeasures()
        with judging(self.model), from_the_beginning(loader):
            for batch in loader:
                for name, sums in judge_batch(to_device(batch, self._device)).items():
                    found.add(name, sums)
        return found

    def _judge_batch(self, batch: Any) -> dict[str, Sums]:
        with self._autocast():
            output = self.model(inputs_of(batch))
            loss = self.loss(output, targets_of(batch))
        found = {"loss": Sums.of_mean(loss, weight_of(self.loss, batch))}
        return {**found, **measure(self.metrics, self._predict(output, batch))} if self.metrics else found

    @stage("prediction")
    def _predict(self, output: Any, batch: Any) -> Judged:
        needs = needs_of(self.metrics)
        texts = self.decoder.texts(output, self.vocabulary, model=self.model) if "hypotheses" in needs else None
        forced = teacher_forced_texts(output, batch, self.vocabulary.decode) if "teacher_forced" in needs else None
        return Judged(batch, output, texts, forced)

    # State, beside the fields: saved with the trainer by the serialization

    def state_dict(self) -> dict[str, Any]:
        """What training changed in the parts that are built, and in the random generators."""
        if self._optimization is None:
            return {}
        return {
            "optimization": self._optimization.state_dict(),
            "measures": self.performance_measures.state_dict(),
            "validated_at": self._validated_at,
            "generators": generator_states(),
        }

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        self._build()
        self._opt.load_state_dict(content["optimization"])
        self.performance_measures.load_state_dict(content["measures"])
        self._validated_at = content["validated_at"]
        restore_generators(content["generators"])

    def original_fields(self) -> dict[str, Any]:
        """What fields held before the parts were built from them; this is what is written to YAML."""
        return self._original_fields

    # Preparation

    @property
    def _opt(self) -> Optimization:
        assert self._optimization is not None, "the trainer builds its optimizer before the first batch"
        return self._optimization

    def _build(self) -> None:
        if self._optimization is not None:
            return
        self.hooks, self.seconds_in_callbacks = listen(self, self.callbacks, _rank())
        self.model = self._build_model(self.model)
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self._original_fields = {"optimizer": self.optimizer, "scheduler": self.scheduler}
        self.optimizer = self._build_optimizer(trained)
        if hasattr(self.scheduler, "build"):
            self.scheduler = self.scheduler.build(self.optimizer)
        scaler = torch.amp.GradScaler(self._device.type) if self.precision == "float16" else None
        self._optimization = Optimization(self.model, self.optimizer, self.scheduler, scaler)

    @stage("build_model")
    def _build_model(self, model: nn.Module) -> nn.Module:
        return model.to(self._device).train()

    @stage("build_optimizer")
    def _build_optimizer(self, parameters: Iterable[Any]) -> Any:
        return self.optimizer.build(parameters) if hasattr(self.optimizer, "build") else self.optimizer

    def _listen(self) -> None:
        self.hooks, self.seconds_in_callbacks = listen(self, self.callbacks, _rank())
        fire(self.hooks, Moment(Event.ATTACH.value, self))

    def _prepare_data(self) -> None:
        """Let the training data say what all data is measured by, such as global statistics, before any is used."""
        prepare = getattr(getattr(self.train_data_loader, "dataset", None), "prepare", None)
        if prepare is not None:
            prepare()

    def _check(self) -> None:
        """Refuse, before the first batch, what would fail after hours."""
        decoding = [describe(metric).name for metric in self.metrics if "hypotheses" in describe(metric).needs]
        if self.decoder is None and decoding:
            raise UsageError(f"{decoding[0]} reads decoded text: the trainer needs a `decoder`, e.g. GreedyCTCDecoder.")
        known = self._measure_names()
        for callback in self.callbacks:
            for name in callback.measures_needed() if isinstance(callback, AbstractCallback) else ():
                if name not in known:
                    hint = did_you_mean(name, known) or f"; there are {', '.join(sorted(known))}."
                    raise UsageError(f"{type(callback).__name__} reads {name!r}, which nobody computes{hint}")

    def _measure_names(self) -> set[str]:
        metrics = {describe(metric).name: describe(metric) for metric in self.metrics}
        names = {"loss", "gradient_norm"} | {name for name, described in metrics.items() if not described.needs}
        return names | {VALIDATION + name for name in ("loss", *metrics)} if self.val_data_loader is not None else names

    def _batches(self, epoch: int) -> Iterator[Any]:
        loader = self.train_data_loader
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)
            return iter(loader)
        batches: Iterator[Any] = iter(loader)
        if self.batches_done:
            logger.warning("%s has no position; passing over %d batches.", type(loader).__name__, self.batches_done)
            for _ in range(self.batches_done):
                next(batches, None)
        return batches

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = _PRECISIONS[self.precision]
        return torch.autocast(self._device.type, dtype) if dtype is not None else nullcontext()

    def _finished(self) -> bool:
        return self.epoch >= self.epochs or self._limit_reached()

    def _limit_reached(self) -> bool:
        share = self.epoch / self.epochs
        return self._limit is not None and self._limit.reached(self.epoch, self.global_step, self.seconds, share)

    def _write_checkpoint_if_asked(self) -> None:
        asked, self._checkpoint_asked = self._checkpoint_asked, None
        if asked is not None:
            self._checkpoint(self.experiment.checkpoints.path_of(self.global_step) if asked is True else asked)

    @stage("checkpoint")
    def _checkpoint(self, path: Path) -> Path:
        Snapshot(self).write(path)
        return path

    def _say_stopped(self, stop: Stop) -> None:
        logger.info("Training stopped at epoch %d, step %d: %s", self.epoch, self.step, stop.reason or "as asked")

    def _close_callbacks(self) -> None:
        for callback in self.callbacks:
            if hasattr(callback, "close"):
                try:
                    callback.close()
                except Exception:
                    logger.exception("%s failed in close().", type(callback).__name__)


def _rank() -> int:
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0

"""The trainer: epoch, batch, forward, loss, backward, step, in the order in which they happen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.events import Event, Listeners, Moment, Stop, stage, take_class_callbacks, without_listener
from sonosco_like.metrics import DecodedBatch, Need, Sums
from sonosco_like.optim import AdamW
from sonosco_like.records import Prediction
from sonosco_like.serialization import serializable, state
from sonosco_like.training.assembly import BUILT, BUILT_FROM, Assembly, let_settings_be_built
from sonosco_like.training.batches import check_loss, loss_of, output_of, to_device, too_large
from sonosco_like.training.checks import check_is_model, check_settings
from sonosco_like.training.guard import Guard
from sonosco_like.training.loaders import made, tokenizer_of
from sonosco_like.training.measures import PerformanceMeasures, Validator, evaluation_mode
from sonosco_like.training.observations import Observations
from sonosco_like.training.optimization import build_optimizer
from sonosco_like.training.position import Position, ReadThrough, upgrade_position
from sonosco_like.training.processes import Processes
from sonosco_like.training.provenance import origin_of, recogniser_layout
from sonosco_like.training.saver import CheckpointSaver, UsedWeights, WeightAverage
from sonosco_like.training.session import Requests, TrainingSession


@serializable(version=2)
class ModelTrainer:
    """Trains a model on batches and calls its callbacks.

    Any `nn.Module` and any iterable of batches will do. Our own are saved with it and resumed at the exact batch.

    `val_data_loader` is one loader, or several by name, whose measures are then `val_<name>_<measure>`. `test_step` is
    the number of batches between two validations, or a text such as `500ba` or `2ep`; unless it counts epochs, a
    validation also ends every epoch. `accumulate_gradients` batches share a step, as if they were one. `clip_grads`
    limits the norm of the gradients, `clip_values` each of them. `averaging` keeps a moving average of the weights.
    `non_finite` says what a loss that is no number means: the end of the run (`stop`), a batch to leave out (`skip`),
    a return to the weights of the newest checkpoint (`rollback`), or nothing (`ignore`, which alone never waits for the
    device). `compile` names a backend of `torch.compile`; `gradient_checkpointing` names, by patterns, modules that
    compute activations again instead of keeping them. `sync_batch_norm` has batch normalisation see the batches of all
    processes as one; `process_timeout` (`30min`) is how long one process waits for another.

    The settings stay as they were given; `model`, `optimizer`, `scheduler` and the loaders read as what was built of
    them. Everything else is in objects that alone change their attributes: see `init`.
    """

    events: ClassVar[tuple[str, ...]] = ()
    class_callbacks: ClassVar[list[Any]] = []

    model: nn.Module = field(kw_only=False, metadata=BUILT)
    loss: Callable[..., Any] = field(kw_only=False)
    epochs: int = field(kw_only=False)
    train_data_loader: Any = field(kw_only=False, metadata=BUILT_FROM)
    val_data_loader: Any = field(default=None, kw_only=False, metadata=BUILT_FROM)
    test_data_loader: Any = field(default=None, kw_only=False, metadata=BUILT_FROM)
    decoder: Any = field(default=None, kw_only=False)
    optimizer: Any = field(default_factory=AdamW, kw_only=False, metadata=BUILT_FROM)
    scheduler: Any = field(default=None, metadata=BUILT_FROM)
    metrics: list[Callable[..., Any]] = field(default_factory=list, kw_only=False)
    callbacks: list[Any] = field(default_factory=list, kw_only=False)
    device: torch.device | None = field(default=None, kw_only=False)
    clip_grads: float | None = field(default=None, kw_only=False)
    clip_values: float | None = None
    accumulate_gradients: int = 1
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    test_step: int | str | None = field(default=50, kw_only=False)
    max_duration: str | None = field(default=None, kw_only=False)
    averaging: WeightAverage | None = None
    non_finite: Literal["stop", "skip", "rollback", "ignore"] = "stop"
    compile: str | None = None
    gradient_checkpointing: list[str] = field(default_factory=list)
    sync_batch_norm: bool = False
    process_timeout: str | None = None
    saver: CheckpointSaver = field(default_factory=CheckpointSaver)
    position: Position = state(factory=Position)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        take_class_callbacks(cls)

    def __post_init__(self) -> None:
        self.processes = Processes()
        self.listeners = Listeners(self, self.processes.rank, self.processes.agree_on)
        self.init()

    @stage("init")
    def init(self) -> None:
        """Refuse invalid settings, and begin with nothing built."""
        check_settings(self)
        self.experiment: Any = None
        self.performance_measures = PerformanceMeasures()
        self.requests = Requests(self.processes)  # to stop, to save a checkpoint
        self.parts = Assembly(self)  # what is built of the settings
        self.used_weights = UsedWeights(self)  # of a saved trainer
        self.validator = Validator(self)
        self.guard = Guard(self)  # the last good moment, to go back to
        self.observations = Observations(self)  # the curves, to be explained
        self.session = TrainingSession(self)  # what surrounds the loop

    epoch = ReadThrough[int]("position.epoch")  # under way, from 0
    step = ReadThrough[int]("position.step")  # the batch under way in its epoch, from 0
    global_step = ReadThrough[int]("position.global_step")  # batches done in all
    batches_done = ReadThrough[int]("position.batches_done")  # of this epoch
    seconds = ReadThrough[float]("position.seconds")  # that the training has lasted
    seconds_in_callbacks = ReadThrough[dict[str, float]]("listeners.seconds")  # by name
    vocabulary = ReadThrough[Any]("parts.tokenizer")  # the tokenizer of the data

    @property
    def validation_sets(self) -> dict[str | None, Any]:
        """The loaders of validation data by name; the name of a single one is None."""
        loaders = self.val_data_loader
        return dict(loaders) if isinstance(loaders, dict) else {} if loaders is None else {None: loaders}

    # What users call

    def start_training(self) -> None:
        """Train from the beginning to the end."""
        if self.global_step:
            raise UsageError(f"This trainer is at step {self.global_step} already; call continue_training().")
        self.session.start()

    def continue_training(self) -> None:
        """Continue the training from the present position."""
        self.session.start()

    def stop_training(self, reason: str = "stop_training() was called") -> None:
        """End the training after the present batch; all callbacks are called for its end."""
        self.requests.ask_to_stop(Stop(reason))

    def add_callback(self, callback: Any) -> None:
        """Add a callback from now on; of a class, an instance with its defaults."""
        self.set_callbacks([*self.callbacks, callback() if isinstance(callback, type) else callback])

    def remove_callback(self, callback: Any) -> None:
        """Remove a callback; of a class, all its instances."""
        self.set_callbacks(without_listener(self.callbacks, callback))

    def set_callbacks(self, callbacks: list[Any]) -> None:
        """Replace all callbacks, also during a run (`Listeners.replacing`)."""
        with self.listeners.replacing(callbacks):
            self.callbacks = list(callbacks)

    def add_metric(self, metric: Callable[..., Any]) -> None:
        """Compute one more metric."""
        self.set_metrics([*self.metrics, metric])

    def set_metrics(self, metrics: list[Callable[..., Any]]) -> None:
        """Replace all metrics, from the next batch on."""
        self.validator.use_metrics(metrics)
        self.metrics = list(metrics)

    def update_metric(self, name: str, value: float | Tensor) -> None:
        """Add a measure that a callback computed, and log it; a value that is not a number is only logged."""
        if not isinstance(value, Tensor) or value.dim() == 0:
            self.performance_measures.update_metric(name, float(value))
        self.log({name: value})

    def save_checkpoint(self, path: str | Path | None = None) -> None:
        """Save the whole trainer when the present batch or epoch is complete: to `path`, or in the run folder."""
        self.requests.ask_for_checkpoint(path, self.experiment)

    def evaluate(self, loader: Any) -> dict[str, float]:
        """Loss and metrics on the data of a loader. Measures, validations and the loader's position do not change."""
        return dict(self.validator.evaluate(loader))

    def predict(self, loader: Any) -> list[Prediction]:
        """The prediction for each example of a loader: a text with a `decoder`, else the result of `predict_batch`."""
        return self.validator.predict(loader)

    def evaluation_mode(self) -> AbstractContextManager[None]:
        """The model without dropout and without gradients inside the block; afterwards it is as before."""
        return evaluation_mode(self.model)

    def log(self, values: Mapping[str, Any]) -> None:
        """Log named values at the present step; inside a batch, at the step of its end."""
        if self.listeners.has_listener(Event.LOG.value):
            step = self.global_step + self.position.is_in_batch
            self.listeners.fire(Event.LOG.value, values=dict(values), epoch=self.epoch, step=step)

    def fire(self, event: str, **args: Any) -> Moment:
        """Fire an event that this class names in `events`."""
        return self.listeners.fire(event, **args)

    # What is built of the settings, stage by stage; `name` is train, val, val_<name> or test

    @stage("build_model")
    def build_model(self, model: nn.Module) -> nn.Module:
        """The model on its device, ready to learn."""
        check_is_model(model)
        return model.to(self.parts.device).train()

    @stage("build_optimizer")
    def build_optimizer(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> Any:
        """The optimizer of the named parameters; those that are frozen for a time are among them."""
        return build_optimizer(self.optimizer, parameters)

    @stage("build_scheduler", may_be_none=True)
    def build_scheduler(self, optimizer: Any) -> Any:
        """The schedule of an optimizer, if there is one."""
        return self.parts.lengths.build(self.scheduler, optimizer)

    @stage("build_data")
    def build_data(self, name: str, loader: Any) -> Any:
        """A loader that is ready. A foreign loader brings its data: it has only this stage and `create_loader`."""
        loader = made(loader)
        dataset: Any = getattr(loader, "dataset", None)
        if hasattr(dataset, "use_rows"):  # it reads a manifest, step by step
            dataset.use_utterances(self.load_data(name, dataset))
            dataset.use_rows(self.split_data(name, dataset, self.process_data(name, dataset)))
        if name == "train" and hasattr(dataset, "prepare"):
            dataset.prepare()  # what all data is measured by, such as global statistics
        return loader

    @stage("load_data")
    def load_data(self, name: str, dataset: Any) -> Any:
        """The rows of a dataset's manifest, read from their file."""
        return dataset.utterances

    @stage("process_data")
    def process_data(self, name: str, dataset: Any) -> Any:
        """The indices of the utterances that can be used: those whose length is within the limits."""
        return dataset.within_limits()

    @stage("split_data")
    def split_data(self, name: str, dataset: Any, rows: Any) -> Any:
        """The indices that belong to this dataset; all of them, unless it is one `part` of its manifest."""
        return dataset.select_part(rows)

    @stage("create_loader")
    def create_loader(self, name: str, loader: Any) -> Any:
        """The loader in a form that starts at any batch, with a shard of its data for each process."""
        loader = self.parts.loaders.adapt(loader, equal_shards=name == "train")
        self.processes.shard(loader)
        return loader

    @stage("build_tokenizer", may_be_none=True)
    def build_tokenizer(self) -> Any:
        """The tokenizer of the data, if it has one."""
        return tokenizer_of(self.train_data_loader, *self.validation_sets.values(), self.test_data_loader)

    # The loop

    @stage("training")
    def train(self) -> None:
        """Train epoch after epoch, until all are done or a Stop ends the training."""
        self.requests.agree(self.experiment)
        stop = self.requests.stop
        while stop is None and self.session.has_next_epoch():
            self.guard.mark_good(settings=True)
            try:
                self.train_epoch(self.epoch)
                self.processes.barrier("end of epoch")
            except Stop as raised:
                stop = self.session.end_epoch_early(raised)
            stop = self.session.close_epoch(stop)
        if stop is not None:
            raise stop

    @stage("epoch")
    def train_epoch(self, epoch: int) -> None:
        """Train all batches; then use the remaining gradients, and validate the epoch."""
        self.session.begin_epoch()
        with self.parts.batches() as batches:
            while not self.position.is_read:
                self.session.begin_batch()
                try:
                    batch = batches.agree(self.fetch(batches))
                    if batch is None:
                        break
                    self.train_batch(batch)
                    self.requests.agree(self.experiment)
                except Stop as stop:
                    self.session.end_batch_early(stop, batches)
                self.session.end_batch()
        self.session.end_epoch()

    @stage("batch")
    def train_batch(self, batch: Any) -> None:
        """Do forward, loss, backward and step; update the measures, and validate if that is due."""
        parts, batch = self.parts, to_device(batch, self.parts.device)
        try:
            with parts.autocast():
                output = self.forward(batch)
                loss = self.compute_loss(output, batch)
            check_loss(loss, learning=True)
            value = loss.detach() if self.non_finite == "ignore" else loss.item()
            if usable := self.guard.is_usable(value, batch):
                weight = self.validator.weight_of(batch)
                measured = self.validator.measure_training(output, batch)  # before the weights change: it may fail
                parts.optimization.set_weight(weight)
                self.backward(loss)
                if parts.optimization.pending >= self.accumulate_gradients:
                    self.optimizer_step()
        except torch.OutOfMemoryError as error:
            raise too_large(batch) from error
        self.session.count_batch()
        if usable:
            self.performance_measures.add_batch(value, weight, measured, self.processes, parts.device)
        self.session.validate_if_due()
        self.position.complete_batch()

    @stage("fetch", may_be_none=True)
    def fetch(self, batches: Iterator[Any]) -> Any:
        """The next batch, or None at the end of the epoch."""
        batch = next(batches, None)
        self.position.receive_batch() if batch is not None else self.position.end_data()
        return batch

    @stage("forward")
    def forward(self, batch: Any) -> Any:
        """The output of the model for a batch."""
        return output_of(self.parts.network, self.parts.model, batch)

    @stage("loss")
    def compute_loss(self, output: Any, batch: Any) -> Tensor:
        """The loss of an output."""
        return cast(Tensor, loss_of(self.loss, output, batch, self.parts.model))

    @stage("backward")
    def backward(self, loss: Tensor) -> None:
        """Add the gradients of the loss to those that wait for their step."""
        self.parts.optimization.backward(loss)
        self.processes.all_reduce_gradients(self.parts.model)

    @stage("optimizer_step")
    def optimizer_step(self) -> None:
        """Change the weights with the gradients of up to `accumulate_gradients` batches, as if they were one batch."""
        self.processes.barrier("gradients of a step")
        self.parts.optimization.unscale()
        self.clip_gradients()
        self.processes.barrier("optimizer step")
        self.parts.optimization.step()
        self.validator.forget_predictions()
        if self.averaging is not None:
            self.averaging.update(self.parts.model)

    @stage("clip_gradients")
    def clip_gradients(self) -> None:
        """Limit the gradients, and measure their norm if a callback needs it."""
        is_read = self.performance_measures.norm_is_read(self.listeners)
        norm = self.parts.optimization.clip(self.clip_grads, self.clip_values, is_read)
        self.performance_measures.add_gradient_norm(norm)

    @stage("validation")
    def validate(self, loader: Any, name: str | None) -> dict[str, float]:
        """The measures of one validation set, which are current from now on."""
        return self.validator.validate(loader, name)

    @stage("validation_batch")
    def validate_batch(self, batch: Any) -> dict[str, Sums]:
        """The sums behind the measures of one batch."""
        return self.validator.validate_batch(batch)

    @stage("prediction")
    def predict_batch(self, output: Any, batch: Any, needs: Set[Need]) -> DecodedBatch:
        """The texts of a batch that are needed. An override may return anything else, such as `output.argmax(1)`:
        that is what `predict` then gives, and what metrics find in `decoded.predictions`.
        """
        return self.validator.decode(output, batch, needs)

    @stage("checkpoint")
    def write_checkpoint(self, path: Path) -> Path:
        """Give the whole trainer, as it is now, to the saver; only the first process does this."""
        self.parts.ranks.gather(self.train_data_loader)
        self.guard.note_checkpoint()
        if self.processes.is_first:
            with self.used_weights.set_aside():
                self.saver.save(self, path, origin_of(self))
        return path

    def state_dict(self) -> dict[str, Any]:
        """The state of the built parts and of the random generators."""
        if not self.parts.is_built:
            return {}
        measures, layout = self.performance_measures.state_dict(), recogniser_layout(self)
        further: dict[str, Any] = {"used_weights": self.used_weights, "untouched_model": self.observations.untouched}
        held = {name: content for name, part in further.items() if (content := part.state_dict())}
        return {**self.parts.state_dict(), "measures": measures, "recogniser": layout, **held}

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        self.parts.load_state_dict(content)
        self.performance_measures.load_state_dict(content["measures"])
        self.used_weights.load_state_dict(content.get("used_weights", {}))
        self.observations.untouched.load_state_dict(content.get("untouched_model", {}))

    upgrade = staticmethod(lambda version, fields: fields)  # the settings of version 1 are those of today
    upgrade_state = staticmethod(upgrade_position)


let_settings_be_built(ModelTrainer)

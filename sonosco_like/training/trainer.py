"""The trainer: epoch, batch, forward, loss, backward, step, in the order in which they happen."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.events import Event, Moment, Stop, close, fire, listen, listen_anew, stage
from sonosco_like.metrics import describe
from sonosco_like.optim import AdamW
from sonosco_like.serialization import serializable, state
from sonosco_like.training.averaging import WeightAverage
from sonosco_like.training.batches import describe_batch, next_batch, refuse_empty, to_device, weight_of
from sonosco_like.training.calling import check_loss, loss_of, output_of
from sonosco_like.training.checkpointing import Checkpointing
from sonosco_like.training.limit import Limit
from sonosco_like.training.measures import PerformanceMeasures
from sonosco_like.training.preparing import READING
from sonosco_like.training.processes import Processes, limit_of
from sonosco_like.training.ranks import RankStates
from sonosco_like.training.recovering import Recovering
from sonosco_like.training.saving import CheckpointSaver
from sonosco_like.training.validating import interval_of

logger = logging.getLogger(__name__)


@serializable
class ModelTrainer(Checkpointing, Recovering):
    """Trains a model on batches and tells its callbacks about it.

    Any `nn.Module` and any iterable of batches will do. Our own models and loaders are saved with the trainer and
    resumed at the exact batch.

    `val_data_loader` is one loader, or several by name, whose measures are then `val_<name>_<measure>`. `test_step` is
    the number of batches between two validations, or a text such as `500ba` or `2ep`; unless it counts epochs, a
    validation also ends every epoch. `accumulate_gradients` batches share a step, as if they were one. `clip_grads`
    limits the norm of the gradients, `clip_values` each of them. `averaging` keeps a moving average of the weights
    beside them. `non_finite` says what a loss that is not a number means: the end of the run (`stop`), a batch to leave
    out (`skip`), weights to take back to the newest checkpoint (`rollback`), or nothing (`ignore`, which alone never
    waits for the device). `compile` names a backend of `torch.compile`; `gradient_checkpointing` names, by patterns,
    modules that compute activations again instead of keeping them. `sync_batch_norm` has batch normalisation see the
    batches of all processes as one, and `process_timeout` (`30min`) is how long one waits for another. `saver` writes
    the checkpoints.

    `epoch` and `step` are those under way, both from 0; `global_step` counts the batches done.
    """

    events: ClassVar[tuple[str, ...]] = ()

    model: nn.Module = field(kw_only=False)
    loss: Callable[..., Any] = field(kw_only=False)
    epochs: int = field(kw_only=False)
    train_data_loader: Any = field(kw_only=False)
    val_data_loader: Any = field(default=None, kw_only=False)
    test_data_loader: Any = field(default=None, kw_only=False)
    decoder: Any = field(default=None, kw_only=False)
    optimizer: Any = field(default_factory=AdamW, kw_only=False)
    scheduler: Any = None
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
    epoch: int = state(0)
    step: int = state(0)
    global_step: int = state(0)
    batches_done: int = state(0)
    epoch_read: bool = state(False)
    batch_unfinished: bool = state(False)
    rollbacks: int = state(0)
    seconds: float = state(0.0)

    def __post_init__(self) -> None:
        self.processes = Processes()
        self.hooks, self.seconds_in_callbacks = listen(self, (), self.processes.rank)
        self.init()

    @stage("init")
    def init(self) -> None:
        """Refuse what cannot be, and begin with nothing built."""
        for name in ("epochs", "accumulate_gradients"):
            if getattr(self, name) < 1:
                raise UsageError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
        self._read_durations()
        limit_of(self.process_timeout)
        self.performance_measures = PerformanceMeasures()
        self.experiment: Any = None
        self._device = torch.device("cpu")
        self._inference = self.model
        self._optimization = None
        self._last_good = self._undo = None
        self._original_fields = {}
        self._stop = self._checkpoint_asked = None
        self._fetched = self._listening = self._norm_is_read = False
        self._vocabulary = None
        self._predictions = []
        self._ranks = RankStates(self.processes)
        self._cheap_metrics = []
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
        """Have one more callback listen, from now on; of a class, an instance with its defaults."""
        self.set_callbacks([*self.callbacks, callback() if isinstance(callback, type) else callback])

    def remove_callback(self, callback: Any) -> None:
        """Have a callback listen no more; of a class, all its instances."""
        by_class = isinstance(callback, type)
        left = [each for each in self.callbacks if not (isinstance(each, callback) if by_class else each is callback)]
        if len(left) == len(self.callbacks):
            name = callback.__name__ if by_class else type(callback).__name__
            raise UsageError(f"The trainer has no callback {name} to remove.")
        self.set_callbacks(left)

    def set_callbacks(self, callbacks: list[Any]) -> None:
        """Have these callbacks listen instead of the present ones.

        In mid run the new ones hear `attach` and every stage that begins from now on; those left out are closed.
        """
        before, after = self.callbacks, list(callbacks)
        if self._listening:
            self.hooks, of_newcomers = listen_anew(self, before, after, self.processes.rank)
            self._norm_is_read = not READING.isdisjoint(self.hooks)
            if self._undo is not None:
                self._undo.watch(self.hooks)
        self.callbacks = after
        if self._listening:
            close(each for each in before if not any(each is other for other in after))
            fire(of_newcomers, Moment(Event.ATTACH.value, self))

    def add_metric(self, metric: Callable[..., Any]) -> None:
        """Compute one more metric."""
        self.set_metrics([*self.metrics, metric])

    def set_metrics(self, metrics: list[Callable[..., Any]]) -> None:
        """Compute these metrics instead of the present ones, from the next batch on."""
        self._cheap_metrics = [metric for metric in metrics if not describe(metric).needs]
        self.metrics = list(metrics)

    def update_metric(self, name: str, value: float | Tensor) -> None:
        """Put a measure that a callback computed beside the others, and log it; what is no number is only logged."""
        if not isinstance(value, Tensor) or value.dim() == 0:
            self.performance_measures.update_metric(name, float(value))
        self.log({name: value})

    def save_checkpoint(self, path: str | Path | None = None) -> None:
        """Save the whole trainer once the batch or epoch under way is complete: to `path`, or into the run folder."""
        if path is None and self.experiment is None:
            raise UsageError("There is no run folder to save a checkpoint into; give save_checkpoint a path.")
        self._checkpoint_asked = True if path is None else Path(path)

    def log(self, values: Mapping[str, Any]) -> None:
        """Hand named values to the callbacks that write them down, as of this step: in a batch, that of its end."""
        if Event.LOG.value in self.hooks:
            in_batch = self._fetched and self.batches_done == self.step  # a batch that is not counted yet
            self.fire(Event.LOG.value, values=dict(values), epoch=self.epoch, step=self.global_step + in_batch)

    def fire(self, event: str, **args: Any) -> Moment:
        """Let callbacks hear an event that this class names in `events`."""
        moment = Moment(event, self, args)
        fire(self.hooks, moment)
        return moment

    # The loop

    def _run(self) -> None:
        self._stop = None
        if self._durations_read != (self.test_step, self.max_duration):
            self._read_durations()
        self._clock = time.monotonic() - self.seconds
        self.processes.begin(self.process_timeout)
        try:
            self._run_to_its_end()
        except BaseException as error:
            if isinstance(error, Exception):
                self.processes.tell(error)
                self._save_last_good()
            self._tell_of(error)
            raise
        finally:
            self._listening = False
            close(self.callbacks)
            self.saver.close()
        self.saver.check()

    def _run_to_its_end(self) -> None:
        try:
            self._build()
            self._listen()
            self._prepare()
            self._cheap_metrics = [metric for metric in self.metrics if not describe(metric).needs]
            self.train()
            self.processes.meet("end of training")
        except Stop as raised:
            stop = self.agree_on(raised)
            logger.info("Training stopped at epoch %d, step %d: %s", self.epoch, self.step, stop.reason or "as asked")
            if stop.scope != "training":
                logger.warning("A Stop of the %s ended the training, as no epoch was under way.", stop.scope)
        self._agree()
        self._write_checkpoint_if_asked()
        self._ranks.gather(self.train_data_loader)

    @stage("training")
    def train(self) -> None:
        """Epoch after epoch, until all are done or somebody stops it."""
        self._agree()
        stop = self._stop
        while stop is None and self.epoch < self.epochs and not self._limit.ends_training(self):
            self._mark_good(settings=True)
            try:
                self.train_epoch(self.epoch)
                self.processes.meet("end of epoch")
            except Stop as raised:
                agreed = self.agree_on(raised)
                stop = agreed if agreed.scope == "training" else None
                self.epoch_read = self.epoch_read or agreed.scope == "epoch"
            self._go_no_more_back()
            self._agree()
            stop = stop or self._stop
            if self.epoch_read:
                self.epoch, self.step, self.batches_done, self.epoch_read = self.epoch + 1, 0, 0, False
                self._fetched = False
            self._write_checkpoint_if_asked()
        if stop is not None:
            raise stop

    @stage("epoch")
    def train_epoch(self, epoch: int) -> None:
        """Batch after batch; then what gradients are left over are used, and the epoch is validated."""
        self.processes.meet("epoch")
        if self.batches_done == 0:
            self.performance_measures.training.clear()
        self._finish_batch_of_failed_run()
        batches = self._batches(epoch)
        while not self.epoch_read:
            self.step = self.batches_done
            self._fetched = False
            self._mark_good()
            try:
                batch = self._with_others(self.fetch(batches))
                if batch is None:
                    if self.batches_done == 0 and not self._fetched:
                        self.epoch_read = False
                        refuse_empty(batches, self.train_data_loader, epoch)
                    self._fetched, self.epoch_read = False, True  # also if only a hook says so
                    break
                self._fetched = True  # also if a trainer of a user's own fetches otherwise
                self.train_batch(batch)
                self._agree()
            except Stop as raised:
                stop = self.agree_on(raised)
                if self._is_handed_out(batches) and self.batches_done == self.step:  # so it is spent
                    self._count_batch()
                self.batch_unfinished = False  # everybody heard its end
                if stop.scope != "batch":
                    raise stop from None
                self._agree()
            self.batch_unfinished = False
            if self._stop is not None:
                raise self._stop
            self._write_checkpoint_if_asked()
            self.saver.check()
            if self._limit.cuts_epoch(self):
                raise Stop(f"max_duration {self.max_duration} is reached")
        self._use_the_rest()
        try:
            self._validate_if_due(at_epoch_end=True)
        except Stop as raised:  # the epoch is complete all the same
            stop = self.agree_on(raised)
            self._stop = stop if stop.scope == "training" else None
        self._mark_good(settings=True)

    @stage("batch")
    def train_batch(self, batch: Any) -> None:
        """Forward, loss, backward and step; measures, and a validation if one is due."""
        batch = to_device(batch, self._device)
        try:
            with self._autocast():
                output = self.forward(batch)
                loss = self.compute_loss(output, batch)
            check_loss(loss, learning=True)
            value = loss.detach() if self.non_finite == "ignore" else loss.item()
            usable = self._is_usable(value, batch)
            if usable:
                weight = weight_of(self.loss, batch)
                measured = self._measured(output, batch)  # before the weights change: a metric that fails is undone
                self._opt.announce(weight)
                self.backward(loss)
                if self._opt.pending >= self.accumulate_gradients:
                    self.optimizer_step()
        except torch.OutOfMemoryError as error:
            raise UsageError(f"Out of memory on a batch with {describe_batch(batch)}. Make batches smaller.") from error
        self._count_batch()
        if usable:
            self.performance_measures.add_batch(value, weight, measured, self.processes, self._device)
        self._validate_if_due()
        self.batch_unfinished = False

    @stage("fetch", may_be_none=True)
    def fetch(self, batches: Iterator[Any]) -> Any:
        """The next batch, or None at the end of the epoch."""
        batch = next_batch(batches)
        self._fetched = batch is not None
        self.epoch_read = batch is None
        return batch

    @stage("forward")
    def forward(self, batch: Any) -> Any:
        """What the model makes of a batch."""
        return output_of(self._inference, self.model, batch)

    @stage("loss")
    def compute_loss(self, output: Any, batch: Any) -> Tensor:
        """How far that is from what it should be."""
        loss: Tensor = loss_of(self.loss, output, batch, self.model)
        return loss

    @stage("backward")
    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss, added to those that wait for their step."""
        self._opt.backward(loss)
        self.processes.share_gradients(self.model)

    @stage("optimizer_step")
    def optimizer_step(self) -> None:
        """New weights from the gradients of up to `accumulate_gradients` batches, taken as one."""
        self.processes.meet("gradients of a step")
        self._opt.unscale()
        self.clip_gradients()
        self.processes.meet("optimizer step")
        self._opt.step()
        self._predictions = []
        if self.averaging is not None:
            self.averaging.update(self.model)

    @stage("clip_gradients")
    def clip_gradients(self) -> None:
        """Limit the gradients, and measure their norm if somebody reads it."""
        norm = self._opt.clip(self.clip_grads, self.clip_values, self._norm_is_read)
        if norm is not None:
            self.performance_measures.training.add_mean("gradient_norm", norm, 1.0)

    def _count_batch(self) -> None:
        self.batches_done += 1
        self.global_step += 1
        self.batch_unfinished = True
        self._go_no_more_back()
        if self.processes.size == 1:  # of several, the clock of the first was taken with the loss
            self.seconds = time.monotonic() - self._clock
        self._predictions = []
        self._opt.settle()

    def _read_durations(self) -> None:
        self._test_interval = interval_of(self.test_step)
        self._limit = Limit(self.max_duration)
        self._durations_read = self.test_step, self.max_duration

    def _finished(self) -> bool:
        return self.epoch >= self.epochs or self._limit.reached(self)

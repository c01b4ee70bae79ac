"""The frame around the loop of a trainer: start and end of a run, and what is due after a batch or an epoch."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from sonosco_like.errors import UsageError
from sonosco_like.events import Event, Stop, describe_place
from sonosco_like.training.batches import EpochBatches
from sonosco_like.training.foreign_loader import name_of
from sonosco_like.training.loaders import SeededLoader
from sonosco_like.training.optimization import length_of
from sonosco_like.training.position import Limit, ValidationInterval
from sonosco_like.training.processes import Processes

_RUN_FOLDER = ""  # stands for the run folder, where a path of its own would be


class Requests:
    """Requests to stop or to save, which wait for the end of the batch; all processes follow them at the same one."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.stop: Stop | None = None
        self.checkpoint: str | None = None  # where to save one, if one is asked for

    def ask_to_stop(self, stop: Stop | None) -> None:
        """Ask for the end of the training; None withdraws an earlier request."""
        self.stop = stop

    def ask_for_checkpoint(self, path: str | Path | None, experiment: Any) -> None:
        """Ask for a checkpoint at a path; without a path, in the run folder of the experiment."""
        if path is None and experiment is None:
            raise UsageError("This trainer has no run folder for a checkpoint. Give save_checkpoint a path.")
        self.checkpoint = _RUN_FOLDER if path is None else str(path)

    def agree(self, experiment: Any) -> None:
        """Let all processes stop, or save, after the same batch if one of them was asked to."""
        if self._processes.size == 1:
            return
        interrupted = bool(getattr(experiment, "interrupted", False))
        flags = self.stop is not None, self.checkpoint is not None, interrupted
        stop, checkpoint, signal = self._processes.any(*flags)
        if checkpoint:
            self.checkpoint = next(each for each in self._processes.gather(self.checkpoint) if each is not None)
        if signal and experiment is not None:
            experiment.interrupted = True
        if stop:
            self.stop = self._processes.agree_on(self.stop)

    def take_checkpoint(self, experiment: Any, step: int) -> Path | None:
        """The path of the checkpoint that was asked for, or None; this clears the request."""
        asked, self.checkpoint = self.checkpoint, None
        if asked is None:
            return None
        path: Path = experiment.checkpoints.path_of(step) if asked == _RUN_FOLDER else Path(asked)
        return path


logger = logging.getLogger(__name__)


class TrainingSession:
    """One call of `start_training`. It owns the clock, and decides what `test_step` and `max_duration` mean."""

    def __init__(self, trainer: Any) -> None:
        """Raises UsageError if `test_step` or `max_duration` is no duration."""
        self._trainer = trainer
        self._clock = 0.0
        self._first_step = 0  # the global step at which the epoch under way began, or went on
        self._read_durations()

    @property
    def is_finished(self) -> bool:
        """Whether the training is at its end."""
        trainer = self._trainer
        return bool(trainer.epoch >= trainer.epochs) or self._limit.is_reached(trainer)

    def start(self) -> None:
        """Train from where the trainer is to the end; whatever happens, listeners and saver are closed."""
        trainer = self._trainer
        trainer.requests.ask_to_stop(None)
        self._read_durations()
        self._clock = time.monotonic() - trainer.seconds
        trainer.processes.begin(trainer.process_timeout)
        try:
            self._train_to_the_end()
        except BaseException as error:
            if isinstance(error, Exception):
                trainer.processes.report_failure(error)
                trainer.guard.save_last_good()
            self._fire_error(error)
            raise
        finally:
            trainer.listeners.close(trainer.callbacks)
            trainer.saver.close()
            trainer.parts.loaders.close()
        trainer.saver.check()

    def _train_to_the_end(self) -> None:
        trainer = self._trainer
        try:
            trainer.parts.build()
            trainer.listeners.open(trainer.callbacks)
            trainer.parts.prepare()
            self._interval.count(lambda duration: replace(length_of(trainer), accumulated=1).steps_of(duration))
            trainer.validator.use_metrics(trainer.metrics)
            if trainer.global_step == 0:
                self._try_largest_first()
            trainer.observations.begin_training()
            trainer.train()
            trainer.processes.barrier("end of training")
        except Stop as raised:
            stop = trainer.processes.agree_on(raised)
            logger.info("Training stopped in %s: %s", describe_place(trainer), stop.reason or "as asked")
            if stop.scope != "training":
                logger.warning(
                    "A Stop with scope %r ended the training, because it was raised outside of any epoch.", stop.scope
                )
        trainer.observations.end_training()
        trainer.requests.agree(trainer.experiment)
        self.write_checkpoint_if_asked()
        trainer.parts.ranks.gather(trainer.train_data_loader)

    def _try_largest_first(self) -> None:
        """Try the largest batch before the training, or log why it is not tried."""
        trainer = self._trainer
        if trainer.processes.size > 1:
            obstacle = f"{trainer.processes.size} processes train together"
        elif trainer.compile:
            obstacle = "a compiled model needs another amount of memory"
        elif not isinstance(trainer.train_data_loader, SeededLoader):
            name = name_of(trainer.train_data_loader)
            obstacle = f"a loader of the class {name} does not say which of its batches is the largest"
        else:
            from sonosco_like.training.speech_checks import try_largest_first  # needs our data, which is there

            try_largest_first(trainer)
            return
        logger.info("The largest batch is not tried before the training, because %s.", obstacle)

    def _fire_error(self, error: BaseException) -> None:
        """Fire the event of the error that ends the run; a callback that fails here must not hide that error."""
        try:
            self._trainer.listeners.fire(Event.ERROR.value, error)
        except Exception as another:
            logger.error("%s", another)

    # The epoch

    def has_next_epoch(self) -> bool:
        """Whether there is another epoch to train; remembers where it starts."""
        trainer = self._trainer
        self._first_step = trainer.global_step
        return bool(trainer.epoch < trainer.epochs) and not self._limit.ends_training(trainer)

    def begin_epoch(self) -> None:
        """Clear the averages of the last epoch, and finish a batch whose run failed after the weights had changed."""
        trainer, position = self._trainer, self._trainer.position
        trainer.processes.barrier("epoch")
        if position.batches_done == 0:
            trainer.performance_measures.training.clear()
        if position.phase == "counted":  # its validation and its end are still missing
            position.return_to_batch()
            self.validate_if_due()
            position.complete_batch()
            trainer.guard.commit()
            trainer.listeners.fire(Event.BATCH_END.value, batch=None)

    def end_epoch(self) -> None:
        """Use the gradients of the last, incomplete group of batches, and validate if that is due."""
        trainer = self._trainer
        self._use_remaining_gradients()
        try:
            self.validate_if_due(at_epoch_end=True)
        except Stop as raised:  # the epoch is complete all the same
            stop = trainer.processes.agree_on(raised)
            trainer.requests.ask_to_stop(stop if stop.scope == "training" else None)
        trainer.guard.mark_good(settings=True)

    def _use_remaining_gradients(self) -> None:
        trainer, optimization = self._trainer, self._trainer.parts.optimization
        if optimization.pending:
            trainer.guard.mark_good()
            try:
                trainer.optimizer_step()
                trainer.processes.barrier("rest of epoch")
            except Stop:
                optimization.complete_batch()
                raise
            optimization.complete_batch()

    def end_epoch_early(self, raised: Stop) -> Stop | None:
        """End an epoch after a Stop. Returns the Stop if it ends the whole training.

        A Stop with scope `epoch` leads to the next epoch. So does one with scope `batch` if this epoch has trained no
        batch, because the epoch would only start again.
        """
        stop: Stop = self._trainer.processes.agree_on(raised)
        if stop.scope == "epoch" or (stop.scope == "batch" and self._trainer.global_step == self._first_step):
            self._trainer.position.end_data()
        return stop if stop.scope == "training" else None

    def close_epoch(self, stop: Stop | None) -> Stop | None:
        """Go to the next epoch if this one is over, and save what was asked for. Returns the Stop of the training."""
        trainer = self._trainer
        trainer.guard.commit()
        trainer.requests.agree(trainer.experiment)
        stop = stop or trainer.requests.stop
        if trainer.position.is_read:
            trainer.position.end_epoch()
        self.write_checkpoint_if_asked()
        return stop

    # The batch

    def begin_batch(self) -> None:
        """Go to the next batch, and remember this moment as good."""
        self._trainer.position.await_batch()
        self._trainer.guard.mark_good()

    def count_batch(self) -> None:
        """Count the batch: later failures do not undo it."""
        trainer = self._trainer
        is_alone = trainer.processes.size == 1  # several processes took the clock of the first one with the loss
        trainer.position.count_batch(time.monotonic() - self._clock if is_alone else None)
        trainer.guard.commit()
        trainer.validator.forget_predictions()
        trainer.parts.optimization.complete_batch()

    def share_loss(self, usable: bool) -> bool:
        """Whether the loss of every process is usable; all processes also take over the clock of the first one."""
        processes = self._trainer.processes
        clock = time.monotonic() - self._clock if processes.is_first else 0.0
        unusable, seconds = processes.barrier("loss", float(not usable), clock)
        self._trainer.position.set_clock(seconds)
        return not unusable

    def end_batch_early(self, raised: Stop, batches: EpochBatches) -> None:
        """End a batch after a Stop; it counts if it was fetched. Raises the Stop again unless its scope is `batch`."""
        trainer = self._trainer
        stop = trainer.processes.agree_on(raised)
        spent = batches.is_spent(is_left_out=stop.scope == "batch")
        trainer.processes.broadcast_buffers(trainer.parts.model)
        if spent:
            self.count_batch()
        trainer.position.complete_batch()  # every callback was called for its end
        if stop.scope != "batch":
            raise stop from None
        trainer.requests.agree(trainer.experiment)

    def end_batch(self) -> None:
        """Do what was asked for during the batch. Raises Stop if the training ends here."""
        trainer = self._trainer
        requests = trainer.requests
        trainer.position.complete_batch()
        if requests.stop is not None:
            raise requests.stop
        if requests.checkpoint is not None:
            self.write_checkpoint_if_asked()
        trainer.saver.check()
        if self._limit.cuts_epoch(trainer):
            raise Stop(f"max_duration {trainer.max_duration} is reached")

    def validate_if_due(self, at_epoch_end: bool = False) -> None:
        """Validate every set, if it is time for that."""
        trainer, position = self._trainer, self._trainer.position
        if not self._interval.is_due(position, at_epoch_end):
            return
        trainer.guard.mark_good(settings=True)
        position.note_validation()
        try:
            trainer.processes.broadcast_buffers(trainer.parts.model)
            for name, loader in trainer.validation_sets.items():
                trainer.validate(loader, name)
            trainer.processes.barrier("end of validation")
        except Stop:
            raise  # a Stop ended it, and every callback was called for its end
        except Exception:
            position.note_validation(done=False)
            raise
        trainer.guard.commit()

    def write_checkpoint_if_asked(self) -> None:
        """Write the checkpoint that was asked for."""
        trainer = self._trainer
        path = trainer.requests.take_checkpoint(trainer.experiment, trainer.global_step)
        if path is not None:
            trainer.write_checkpoint(path)
            trainer.processes.barrier("end of checkpoint")

    def _read_durations(self) -> None:
        self._interval = ValidationInterval(self._trainer.test_step)
        self._limit = Limit(self._trainer.max_duration)

"""What surrounds the loop of a trainer: how a run begins and ends, what is due at the end of a batch or an epoch."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from sonosco_like.errors import UsageError
from sonosco_like.events import Event, Stop, describe_place
from sonosco_like.training.batches import EpochBatches
from sonosco_like.training.memory import try_largest_first
from sonosco_like.training.optimization import length_of
from sonosco_like.training.position import Limit, ValidationInterval
from sonosco_like.training.processes import Processes

_RUN_FOLDER = ""  # stands for the run folder, where a path of its own would be


class Requests:
    """What waits for the end of the batch. Several processes take the requests of all at the same batch."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self.stop: Stop | None = None
        self.checkpoint: str | None = None  # where to save one, if one is asked for

    def ask_to_stop(self, stop: Stop | None) -> None:
        """Have the training end; None takes an earlier request back."""
        self.stop = stop

    def ask_for_checkpoint(self, path: str | Path | None, experiment: Any) -> None:
        """Have a checkpoint written to a path; without one, into the run folder of the experiment."""
        if path is None and experiment is None:
            raise UsageError("There is no run folder to save a checkpoint into; give save_checkpoint a path.")
        self.checkpoint = _RUN_FOLDER if path is None else str(path)

    def agree(self, experiment: Any) -> None:
        """Have all processes stop, or save, after the same batch when one of them was asked to."""
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
        """Where a checkpoint is to be written now, or None; the request is met by that."""
        asked, self.checkpoint = self.checkpoint, None
        if asked is None:
            return None
        path: Path = experiment.checkpoints.path_of(step) if asked == _RUN_FOLDER else Path(asked)
        return path


logger = logging.getLogger(__name__)


class TrainingSession:
    """From a call of `start_training` to its end. It owns the clock, and what `test_step` and `max_duration` mean."""

    def __init__(self, trainer: Any) -> None:
        """Raises UsageError if `test_step` or `max_duration` is no duration."""
        self._trainer = trainer
        self._clock = 0.0
        self._begun_at = 0  # the global step at which the epoch under way began, or went on
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
            try_largest_first(trainer)
            trainer.observations.begin_training()
            trainer.train()
            trainer.processes.barrier("end of training")
        except Stop as raised:
            stop = trainer.processes.agree_on(raised)
            logger.info("Training stopped in %s: %s", describe_place(trainer), stop.reason or "as asked")
            if stop.scope != "training":
                logger.warning("A Stop of the %s ended the training, as no epoch was under way.", stop.scope)
        trainer.observations.end_training()
        trainer.requests.agree(trainer.experiment)
        self.write_checkpoint_if_asked()
        trainer.parts.ranks.gather(trainer.train_data_loader)

    def _fire_error(self, error: BaseException) -> None:
        """Let callbacks hear the error that ends the run; a callback that fails here must not hide it."""
        try:
            self._trainer.listeners.fire(Event.ERROR.value, error)
        except Exception as another:
            logger.error("%s", another)

    # The epoch

    def goes_on(self) -> bool:
        """Whether there is another epoch to train."""
        trainer = self._trainer
        self._begun_at = trainer.global_step
        return bool(trainer.epoch < trainer.epochs) and not self._limit.ends_training(trainer)

    def begin_epoch(self) -> None:
        """Clear the averages of the last epoch; finish the batch in which a run failed after the weights changed."""
        trainer, position = self._trainer, self._trainer.position
        trainer.processes.barrier("epoch")
        if position.batches_done == 0:
            trainer.performance_measures.training.clear()
        if position.phase == "counted":  # its validation and its end are still due
            position.return_to_batch()
            self.validate_if_due()
            position.complete_batch()
            trainer.guard.commit()
            trainer.listeners.fire(Event.BATCH_END.value, batch=None)

    def end_epoch(self) -> None:
        """Take a step with the gradients that are too few for a whole group, and validate if that is due."""
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
                optimization.settle()
                raise
            optimization.settle()

    def leave_epoch(self, raised: Stop) -> Stop | None:
        """A Stop ended the epoch early: returns it if it ends the training. After one of the epoch the next follows.

        So it does after a Stop of the batch if no batch was under way in this epoch: the epoch would only begin again.
        """
        stop: Stop = self._trainer.processes.agree_on(raised)
        if stop.scope == "epoch" or (stop.scope == "batch" and self._trainer.global_step == self._begun_at):
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
        """The batch is spent: nothing takes it back from here on."""
        trainer = self._trainer
        is_alone = trainer.processes.size == 1  # of several, the clock of the first was taken with the loss
        trainer.position.count_batch(time.monotonic() - self._clock if is_alone else None)
        trainer.guard.commit()
        trainer.validator.forget_predictions()
        trainer.parts.optimization.settle()

    def share_loss(self, usable: bool) -> bool:
        """Whether the loss of every process is usable; on the way all take the clock of the first."""
        processes = self._trainer.processes
        clock = time.monotonic() - self._clock if processes.is_first else 0.0
        unusable, seconds = processes.barrier("loss", float(not usable), clock)
        self._trainer.position.set_clock(seconds)
        return not unusable

    def end_batch_early(self, raised: Stop, batches: EpochBatches) -> None:
        """A Stop ended the batch: it is spent if it was fetched. Raises the Stop unless it is of the batch only."""
        trainer = self._trainer
        stop = trainer.processes.agree_on(raised)
        spent = batches.is_spent()
        trainer.processes.broadcast_buffers(trainer.parts.model)
        if spent:
            self.count_batch()
        trainer.position.complete_batch()  # every callback heard its end
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
            raise  # a Stop ended it, and every callback heard its end
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

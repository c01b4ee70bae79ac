"""What happens when a batch goes wrong."""

from __future__ import annotations

import logging
import math
import time
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from sonosco_like.errors import SonoscoError
from sonosco_like.events import Event, Moment, Stop, fire
from sonosco_like.serialization import load
from sonosco_like.training.batches import describe_batch
from sonosco_like.training.validating import Validating

logger = logging.getLogger(__name__)

_ROLLBACKS = 3  # to one checkpoint, before that itself is taken for the cause


class NonFiniteLossError(SonoscoError):
    """The loss of a batch is not a number; says which utterances it was computed on."""


class Recovering(Validating):
    """The part of ModelTrainer that undoes a batch, and keeps what was good when a run fails."""

    @abstractmethod
    def write_checkpoint(self, path: Path) -> Path:
        """Save the whole trainer as it is now."""

    @abstractmethod
    def optimizer_step(self) -> None:
        """New weights from the gradients that wait."""

    def agree_on(self, stop: Stop) -> Stop:
        """The Stop that takes effect in all processes, instead of one that was raised here."""
        return self.processes.agree_on(stop)

    def _with_others(self, batch: Any) -> Any:
        """The batch, or None if for some process there is none any more: all of them end the epoch together."""
        if self.processes.size == 1:
            return batch
        (ended,) = self.processes.meet("batch", float(batch is None))
        if ended and batch is not None:
            logger.warning("Another process has no more batches in epoch %d: the rest of this one is left.", self.epoch)
        return None if ended else batch

    def _is_handed_out(self, batches: Iterator[Any]) -> bool:
        """Whether a batch was fetched, or is now because it was in other processes: a round is spent as a whole."""
        if self.processes.size > 1:
            if self.processes.any(self._fetched)[0] and not self._fetched:
                self._fetched = next(batches, None) is not None
            self.processes.share_buffers(self.model)
        return self._fetched

    def _is_usable(self, loss: Tensor | float, batch: Any) -> bool:
        """Whether a loss can be learnt from; if not, what is configured for that has been done."""
        usable = isinstance(loss, Tensor) or math.isfinite(loss)
        if self.processes.size > 1:
            clock = time.monotonic() - self._clock if self.processes.is_first else 0.0
            unusable, self.seconds = self.processes.meet("loss", float(not usable), clock)
            usable = not unusable
        if usable:
            return True
        place = f"epoch {self.epoch}, step {self.step}"
        value = "not a number in another process" if math.isfinite(loss) else str(float(loss))
        said = f"The loss is {value} at {place}, on a batch with {describe_batch(batch)}."
        if self.non_finite == "stop":
            raise NonFiniteLossError(f"{said} Look at these utterances, or set `non_finite` to skip or rollback.")
        assert self._last_good is not None
        self._last_good.restore_buffers()
        if self.non_finite == "rollback":
            self._roll_back(said)
        else:
            logger.warning("%s The batch is left out.", said)
        return False

    def _roll_back(self, reason: str) -> None:
        """Take weights, optimizer and schedule back to the newest checkpoint; the place in the data stays."""
        newest = self._newest_checkpoint()
        self.rollbacks += 1
        if newest is None or self.rollbacks > _ROLLBACKS:
            why = "there is no checkpoint to go back to" if newest is None else f"{_ROLLBACKS} times back did not help"
            raise NonFiniteLossError(f"{reason} The run cannot be rolled back: {why}.")
        logger.warning("%s Back to the weights of %s.", reason, newest.name)
        saved: Any = load(newest)
        self.model.load_state_dict(saved.model.state_dict())
        self._opt.load_state_dict(saved._opt.state_dict())
        if self.averaging is not None:
            self.averaging.load_state_dict(saved.averaging.state_dict())

    def _newest_checkpoint(self) -> Path | None:
        """The newest checkpoint in the view of the first process, which writes them."""
        self.saver.wait()
        newest = self.experiment.checkpoints.newest() if self.experiment is not None else None
        name = self.processes.from_first(newest.name if newest is not None else None)
        return None if name is None else self.experiment.checkpoints.folder / name

    def _use_the_rest(self) -> None:
        """Take a step with the gradients of an epoch's last batches, if they are too few for a whole group."""
        if self._opt.pending:
            self._mark_good()
            try:
                self.optimizer_step()
                self.processes.meet("rest of epoch")
            except Stop:
                self._opt.settle()
                raise
            self._opt.settle()

    def _undo_batch(self) -> bool:
        """Go back to the end of the last batch that was counted. False if its gradients are mixed with a new one's."""
        if not self._opt.undo():
            return False
        went_back = self._undo is not None and self._undo.restore()
        if (went_back or (self._fetched and self.batches_done == self.step)) and self._last_good is not None:
            self._last_good.restore()
        return True

    def _finish_batch_of_failed_run(self) -> None:
        """The run failed after the weights had changed: the validation and the end of that batch are still due."""
        if self.batch_unfinished:
            self.step = self.batches_done - 1
            self._validate_if_due()
            self.batch_unfinished = False
            self._go_no_more_back()
            fire(self.hooks, Moment(Event.BATCH_END.value, self, {"batch": None}))

    def _save_last_good(self) -> None:
        """After a failure: a checkpoint of the last batch that went well, if it can still be told."""
        if self.experiment is None or self.global_step == 0 or not self.processes.are_complete:
            return
        path = self.experiment.checkpoints.path_of(self.global_step)
        self.saver.wait()
        try:
            if self._all_undo_batch(path):
                self.write_checkpoint(path)
                logger.warning("The state after the last good batch was saved as %s.", path.name)
        except (SonoscoError, OSError) as error:
            logger.warning("The state after the last good batch could not be saved: %s", error)

    def _all_undo_batch(self, path: Path) -> bool:
        """Whether every process is back at the end of the same batch, and it is not saved yet."""
        if self.processes.size == 1:
            return not path.exists() and self._undo_batch()
        ready = self._undo_batch()
        found = self.processes.gather([self.global_step, ready, path.exists()])
        steps = {step for step, _, _ in found}
        return len(steps) == 1 and all(ready for _, ready, _ in found) and not found[0][2]

    def _tell_of(self, error: BaseException) -> None:
        """Let callbacks hear what ends the run; one that fails on top of it must not hide it."""
        try:
            fire(self.hooks, Moment(Event.ERROR.value, self, error=error))
        except Exception as another:
            logger.error("%s", another)

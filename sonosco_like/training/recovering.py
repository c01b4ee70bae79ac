"""What happens when a batch goes wrong."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from pathlib import Path
from typing import Any

from sonosco_like.errors import SonoscoError
from sonosco_like.events import Event, Moment, fire
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

    def _is_usable(self, loss: float, batch: Any) -> bool:
        """Whether a loss can be learnt from; if not, what is configured for that has been done."""
        usable = math.isfinite(loss)
        if self.processes.size > 1:
            usable = not self.processes.any(not usable)[0]
        if usable:
            return True
        place = f"epoch {self.epoch}, step {self.step}"
        value = "not a number in another process" if math.isfinite(loss) else str(loss)
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
        self.saver.wait()
        newest = self.experiment.checkpoints.newest() if self.experiment is not None else None
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
        if self.experiment is None or self.global_step == 0 or self.processes.size > 1:
            return
        path = self.experiment.checkpoints.path_of(self.global_step)
        self.saver.wait()
        try:
            if not path.exists() and self._undo_batch():
                self.write_checkpoint(path)
                logger.warning("The state after the last good batch was saved as %s.", path.name)
        except (SonoscoError, OSError) as error:
            logger.warning("The state after the last good batch could not be saved: %s", error)

    def _tell_of(self, error: BaseException) -> None:
        """Let callbacks hear what ends the run; one that fails on top of it must not hide it."""
        try:
            fire(self.hooks, Moment(Event.ERROR.value, self, error=error))
        except Exception as another:
            logger.error("%s", another)

"""What a checkpoint holds beside the fields of the trainer, and when it is written."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from sonosco_like.events import stage
from sonosco_like.training.identity import origin_of
from sonosco_like.training.preparing import Preparing

logger = logging.getLogger(__name__)


class Checkpointing(Preparing):
    """The part of ModelTrainer that is saved and restored."""

    def _agree(self) -> None:
        """Have all processes stop, or save, after the same batch when one of them wants to."""
        if self.processes.size == 1:
            return
        interrupted = bool(getattr(self.experiment, "interrupted", False))
        asked = self._checkpoint_asked is not None
        stop, checkpoint, signal = self.processes.any(self._stop is not None, asked, interrupted)
        if checkpoint:
            wanted = None if self._checkpoint_asked is None else str(self._checkpoint_asked)
            first = next(each for each in self.processes.gather(wanted) if each is not None)
            self._checkpoint_asked = True if first == str(True) else Path(first)
        if signal and self.experiment is not None:
            self.experiment.interrupted = True
        if stop:
            self._stop = self.processes.agree_on(self._stop)

    def _write_checkpoint_if_asked(self) -> None:
        asked, self._checkpoint_asked = self._checkpoint_asked, None
        if asked is not None:
            self.write_checkpoint(self.experiment.checkpoints.path_of(self.global_step) if asked is True else asked)
            self.processes.meet("end of checkpoint")

    @stage("checkpoint")
    def write_checkpoint(self, path: Path) -> Path:
        """Hand the whole trainer, as it is now, to the saver; only the first process does."""
        self._ranks.gather(self.train_data_loader)
        self.rollbacks = 0
        if self.processes.is_first:
            with self.used_weights.set_aside():
                self.saver.save(self, path, origin_of(self))
        return path

    def state_dict(self) -> dict[str, Any]:
        """What training changed in the parts that are built, and in the random generators."""
        if self._optimization is None:
            return {}
        return {
            "optimization": self._optimization.state_dict(),
            "measures": self.performance_measures.state_dict(),
            "validated_at": self._validated_at,
            **self._ranks.state_dict(),
            "data": self._loaders.state_dict(self.train_data_loader, self._written("train_data_loader")),
            **({"used_weights": used} if (used := self.used_weights.state_dict()) else {}),
        }

    def load_state_dict(self, content: dict[str, Any]) -> None:
        """Continue from what `state_dict` gave."""
        self._build()
        self._opt.load_state_dict(content["optimization"], self.accumulate_gradients)
        self.performance_measures.load_state_dict(content["measures"])
        self._validated_at = content["validated_at"]
        self._loaders.load_state_dict(content.get("data", {}))
        self.used_weights.load_state_dict(content.get("used_weights", {}))
        self._ranks.load_state_dict(content)

    def original_fields(self) -> dict[str, Any]:
        """What fields held before the parts were built from them; this is what is written to YAML."""
        return {**self._original_fields, **self._loaders.originals(self, self._original_fields)}

    def _written(self, field: str) -> Any:
        return self.original_fields().get(field, getattr(self, field))

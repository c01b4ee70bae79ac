"""What a checkpoint holds beside the fields of the trainer, and when it is written."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from sonosco_like.events import stage
from sonosco_like.training.identity import origin_of
from sonosco_like.training.preparing import Preparing
from sonosco_like.training.randomness import as_plain_data, from_plain_data, generator_states, restore_generators

logger = logging.getLogger(__name__)


class Checkpointing(Preparing):
    """The part of ModelTrainer that is saved and restored."""

    def _write_checkpoint_if_asked(self) -> None:
        asked, self._checkpoint_asked = self._checkpoint_asked, None
        if asked is not None:
            self.write_checkpoint(self.experiment.checkpoints.path_of(self.global_step) if asked is True else asked)

    @stage("checkpoint")
    def write_checkpoint(self, path: Path) -> Path:
        """Hand the whole trainer, as it is now, to the saver; only the first process does."""
        self._gathered = self.processes.gather(as_plain_data(generator_states())) if self.processes.size > 1 else []
        self.rollbacks = 0
        if self.processes.is_first:
            with self.used_weights.set_aside():
                self.saver.save(self, path, origin_of(self))
        return path

    def state_dict(self) -> dict[str, Any]:
        """What training changed in the parts that are built, and in the random generators."""
        if self._optimization is None:
            return {}
        others = [from_plain_data(plain) for plain in self._gathered[1:]]
        return {
            "optimization": self._optimization.state_dict(),
            "measures": self.performance_measures.state_dict(),
            "validated_at": self._validated_at,
            "generators": [generator_states(), *others],
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
        generators = content["generators"]
        if len(generators) != self.processes.size:
            logger.warning(
                "This was saved by %d processes and is continued by %d: the run is not the one it would have been.",
                len(generators), self.processes.size,
            )  # fmt: skip
        self._restored = generators[self.processes.rank % len(generators)]
        restore_generators(self._restored)

    def original_fields(self) -> dict[str, Any]:
        """What fields held before the parts were built from them; this is what is written to YAML."""
        return {**self._original_fields, **self._loaders.originals(self, self._original_fields)}

    def _written(self, field: str) -> Any:
        return self.original_fields().get(field, getattr(self, field))

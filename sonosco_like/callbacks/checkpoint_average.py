"""The mean of the last checkpoints, which often hears better than the last one."""

from __future__ import annotations

import logging
from typing import Any

from sonosco_like.callbacks.checkpoints import ModelCheckpoint
from sonosco_like.callbacks.endings import was_interrupted
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.serialization import serializable

logger = logging.getLogger(__name__)


@serializable
class CheckpointAverage(AbstractCallback):
    """Gives the model, when a run has come to its end, the mean of the weights of its last checkpoints.

    `last` is how many of them, the one at the end included; ModelCheckpoint must keep that many. Those that were
    written because the run was interrupted or failed do not count, so that the mean does not depend on that. Statistics
    such as those of batch normalisation are averaged too, and so is the moving average of the weights, if the trainer
    keeps one. The checkpoints stay as they are: only `final/` holds the mean, and what hears the end of the training
    after this callback judges it. A run that is continued goes on from its last checkpoint.
    """

    last: int = 5

    def __post_init__(self) -> None:
        if self.last < 2:
            raise UsageError(f"`last` must be at least 2, or there is nothing to average; got {self.last}.")

    def on_attach(self, moment: Moment) -> None:
        """A run without a folder has no checkpoints; one that keeps too few is told before its first batch."""
        if moment.context.experiment is None:
            raise UsageError("CheckpointAverage needs a run folder with checkpoints: train with an Experiment.")
        for warning in self._warnings(_policies(moment.context)):
            logger.warning("%s", warning)

    def on_training_end(self, moment: Moment) -> None:
        """Put the mean in the place of the last weights."""
        context = moment.context
        if was_interrupted(self, context):
            return
        context.saver.wait()
        context.processes.wait()
        found = self._last_weights(context)
        if len(found) < self.last:
            logger.warning("Only %d checkpoints are there to average, not %d.", len(found), self.last)
        if found:
            names = ", ".join(context.experiment.checkpoints.path_of(step).name for step in found)
            context.used_weights.put_mean(list(found.values()), f"the mean of {names}")
            logger.info("The weights are now the mean of %s.", names)

    def _last_weights(self, context: Any) -> dict[int, dict[str, Any]]:
        """The weights of the last checkpoints that the run takes whatever happens to it, by step."""
        now, weights_at = context.global_step, context.experiment.checkpoints.weights_at
        steps = sorted({step for policy in _policies(context) for step in policy.steps_at_end(now)})
        found = {step: weights_at(step) if step != now else context.used_weights.of_training() for step in steps}
        return dict([(step, weights) for step, weights in found.items() if weights is not None][-self.last :])

    def _warnings(self, policies: list[ModelCheckpoint]) -> list[str]:
        said = []
        kept = sum(policy.most_kept for policy in policies)
        if kept < self.last:
            said.append(
                f"CheckpointAverage averages the last {self.last} checkpoints, but ModelCheckpoint keeps only {kept}: "
                f"set its `keep_last` to {self.last}."
            )
        if any(policy.restore_best for policy in policies):
            said.append("ModelCheckpoint puts the best weights in the place of the mean: leave out `restore_best`.")
        elif any(policy.monitor is not None for policy in policies):
            said.append("The mean of the last checkpoints will be in RUN/final; RUN alone means the best checkpoint.")
        return said


def _policies(context: Any) -> list[ModelCheckpoint]:
    return [callback for callback in context.callbacks if isinstance(callback, ModelCheckpoint)]

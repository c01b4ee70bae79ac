"""Which checkpoints are taken, which of them are kept, and the mean of the last ones."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any

from sonosco_like.callbacks.measures import (
    is_evaluated_by_epoch,
    is_evaluated_by_validation,
    lower_is_better,
    monitored_weights,
)
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Every, Moment, TrainerContext, epoch_is_over
from sonosco_like.runs.run_folder import BEST
from sonosco_like.serialization import serializable, state

logger = logging.getLogger(__name__)


def was_interrupted(callback: AbstractCallback, context: TrainerContext) -> bool:
    """Whether a signal interrupted the training, in any of the processes in which the callback is called."""
    here = bool(getattr(context.experiment, "interrupted", False))
    return bool(context.processes.any(here)[0]) if callback.ranks is None else here


@serializable
class ModelCheckpoint(AbstractCallback):
    """Saves checkpoints of the whole trainer, and deletes old ones when a newer one is on disk.

    A checkpoint is taken at the interval `every` (`1ep`, `200ba`, `10min`); the last `keep_last` of these are kept.
    With `monitor`, a checkpoint is also taken whenever an evaluation of that measure is among the `keep_best` best so
    far; the metric declares which direction is better. `best` in the run folder names the best checkpoint.
    `save_at_end` takes one more at the end. With `restore_best` the model gets the weights of the best checkpoint at
    the end.

    The kept checkpoints depend on the steps and measures of the run, and not on interruptions or the speed of the disk.
    With several ModelCheckpoints in one trainer, a checkpoint is kept if any of them keeps it. The newest checkpoint is
    always kept.
    """

    order: int = 1000
    every: int | str | None = "1ep"
    monitor: str | None = None
    keep_last: int = 2
    keep_best: int = 1
    save_at_end: bool = True
    restore_best: bool = False
    recent: list[int] = state([])
    best: dict[int, float] = state({})

    def __post_init__(self) -> None:
        if self.keep_last < 0 or self.keep_best < 1:
            raise UsageError(
                f"`keep_last` must not be negative and `keep_best` be at least 1, "
                f"got {self.keep_last} and {self.keep_best}."
            )
        if self.restore_best and self.monitor is None:
            raise UsageError("`restore_best` needs a measure to find the best by: give a `monitor`, such as val_loss.")
        self._every = Every(self.every) if self.every is not None else None
        self._requested_at: int | None = None

    def measures_needed(self) -> Iterable[str]:
        """The measure that ranks the checkpoints."""
        return () if self.monitor is None else (self.monitor,)

    def steps_wanted(self) -> set[int]:
        """The steps of the checkpoints to keep."""
        return {*self.recent, *self.best}

    def steps_at_end(self, step: int) -> set[int]:
        """The steps of the checkpoints to keep if the training ends with this step."""
        recent = [*(other for other in self.recent if other != step), step] if self._takes_end(step) else self.recent
        return {*(recent[-self.keep_last :] if self.keep_last else []), *self.best}

    @property
    def most_kept(self) -> int:
        """The largest number of checkpoints that can exist at the end."""
        taken = self._every is not None or self.save_at_end
        return (self.keep_last if taken else 0) + (self.keep_best if self.monitor is not None else 0)

    def _takes_end(self, step: int) -> bool:
        return self.save_at_end or step in self.recent

    # Decisions: in the training thread, before the checkpoint is taken, so that it contains them

    def on_batch_end(self, moment: Moment) -> None:
        """Take a checkpoint if an interval of batches or minutes is over."""
        if self._every is not None and self._every.after_batch(moment.context):
            self._take_checkpoint(moment.context)

    def on_validation_end(self, moment: Moment) -> None:
        """Rank by a measure of the validation."""
        if self.monitor is not None and is_evaluated_by_validation(self.monitor, moment):
            self._rank(moment.context)

    def on_epoch_end(self, moment: Moment) -> None:
        """Rank by a measure of the training, and take a checkpoint if an interval of epochs is over."""
        if self.monitor is not None and is_evaluated_by_epoch(self.monitor, moment):
            self._rank(moment.context)
        if self._every is not None and epoch_is_over(moment) and self._every.after_epoch(moment.context):
            self._take_checkpoint(moment.context)

    def on_training_end(self, moment: Moment) -> None:
        """Take the last checkpoint, unless the run was interrupted."""
        context = moment.context
        if context.experiment is None or was_interrupted(self, context):
            return
        if self.save_at_end and context.global_step not in self.recent:
            self._take_checkpoint(context)
        if self.restore_best:
            self._restore_best(context)

    # Actions: once the checkpoint is on disk

    def on_attach(self, moment: Moment) -> None:
        """Refuse a run without a folder; update `best` and delete old checkpoints if a crash prevented it."""
        context = moment.context
        if getattr(context.experiment, "checkpoints", None) is None:
            raise UsageError(
                "ModelCheckpoint needs a run folder to save checkpoints into: train with an Experiment, or leave it "
                "out and call trainer.save_checkpoint(path)."
            )
        self._warn_of_plain_weights(context)
        if context.processes.is_first:
            context.saver.wait()
            best, keep = _plan(context)
            _checkpoints_of(context).best_steps = best
            _point_and_prune(_checkpoints_of(context), best, keep)

    def on_checkpoint_end(self, moment: Moment) -> None:
        """Update `best` and delete old checkpoints when this checkpoint is on disk."""
        context = moment.context
        checkpoints = getattr(context.experiment, "checkpoints", None)
        if checkpoints is None or moment.error is not None:
            return
        if self._requested_at == context.global_step and moment.result == checkpoints.path_of(context.global_step):
            best, keep = _plan(context)
            context.saver.then(lambda: _point_and_prune(checkpoints, best, keep))

    def _warn_of_plain_weights(self, context: TrainerContext) -> None:
        """Warn if the best checkpoint would be used without the average of the weights."""
        if self.monitor is None or getattr(context, "averaging", None) is None or not context.processes.is_first:
            return
        if monitored_weights(self.monitor, context) == "plain" and self.monitor.startswith("val_"):
            logger.warning(
                "ModelCheckpoint ranks by %s, a measure of the plain weights: the best checkpoint is used with its "
                "plain weights, not with their average. To use the average, monitor val_ema_%s.",
                self.monitor, self.monitor.removeprefix("val_"),
            )  # fmt: skip

    def _take_checkpoint(self, context: TrainerContext) -> None:
        self._forget_failed(context)
        step = context.global_step
        earlier = [other for other in self.recent if other != step]
        self.recent = [*earlier, step][-self.keep_last :] if self.keep_last else []
        self._request_checkpoint(context)

    def _rank(self, context: TrainerContext) -> None:
        assert self.monitor is not None
        value = context.performance_measures.get(self.monitor)
        if value is None or not math.isfinite(value):
            return
        self._forget_failed(context)
        sign = 1 if lower_is_better(self.monitor, context) else -1
        ranked = sorted({**self.best, context.global_step: float(value)}.items(), key=lambda each: sign * each[1])
        self.best = dict(ranked[: self.keep_best])
        if context.global_step in self.best:
            context.used_weights.note_best(monitored_weights(self.monitor, context))
            self._request_checkpoint(context)

    def _request_checkpoint(self, context: TrainerContext) -> None:
        self._requested_at = context.global_step
        _checkpoints_of(context).best_steps, _ = _plan(context)
        context.save_checkpoint()

    def _forget_failed(self, context: TrainerContext) -> None:
        """Drop checkpoints that could not be written from the ranking."""
        failed = {path.name for path in context.saver.failed}
        if failed:
            path_of = _checkpoints_of(context).path_of
            self.recent = [step for step in self.recent if path_of(step).name not in failed]
            self.best = {step: value for step, value in self.best.items() if path_of(step).name not in failed}

    def _restore_best(self, context: TrainerContext) -> None:
        context.saver.wait()
        context.processes.wait()
        checkpoints = _checkpoints_of(context)
        found = ((step, checkpoints.weights_at(step)) for step in self.best)
        step, weights = next(((step, weights) for step, weights in found if weights is not None), (0, None))
        if weights is None:
            logger.warning("No best weights are restored: no saved checkpoint has a value of %s.", self.monitor)
            return
        name = checkpoints.path_of(step).name
        context.used_weights.put(weights, f"those of {name}", monitored_weights(str(self.monitor), context))
        logger.info("The model has the weights of %s, the best by %s.", name, self.monitor)


def _checkpoints_of(context: TrainerContext) -> Any:
    assert context.experiment is not None, "on_attach refuses a trainer without a run folder"
    return context.experiment.checkpoints


def _plan(context: TrainerContext) -> tuple[list[int], set[int]]:
    """The steps that `best` may name, best first, and the steps to keep."""
    policies = [callback for callback in context.callbacks if isinstance(callback, ModelCheckpoint)]
    best = next((list(policy.best) for policy in policies if policy.monitor is not None), [])
    return best, {context.global_step}.union(*(policy.steps_wanted() for policy in policies))


def _point_and_prune(checkpoints: Any, best: list[int], keep: set[int]) -> None:
    found = next((path for path in map(checkpoints.path_of, best) if path.is_dir()), None)
    if found is not None:
        checkpoints.point(BEST, found)
    checkpoints.prune({checkpoints.path_of(step) for step in keep}, last=1)


@serializable
class CheckpointAverage(AbstractCallback):
    """Gives the model the mean of the weights of its last checkpoints at the end of the training.

    `last` is their number, with the checkpoint at the end; ModelCheckpoint must keep as many. Checkpoints that were
    written because the run was interrupted or failed are not used, so that the mean does not depend on interruptions.
    Statistics such as those of batch normalisation are averaged too, and so is the moving average of the weights, if
    the trainer keeps one. Only `final/` holds the mean; the checkpoints do not change. Callbacks that are called after
    this one at the end of the training see the mean. A continued run starts from its last checkpoint.
    """

    last: int = 5

    def __post_init__(self) -> None:
        if self.last < 2:
            raise UsageError(f"`last` must be at least 2, or there is nothing to average; got {self.last}.")

    def on_attach(self, moment: Moment) -> None:
        """Refuse a run without a folder, and warn before the first batch if too few checkpoints are kept."""
        if moment.context.experiment is None:
            raise UsageError("CheckpointAverage needs a run folder with checkpoints: train with an Experiment.")
        for warning in self._warnings(_policies(moment.context)):
            logger.warning("%s", warning)

    def on_training_end(self, moment: Moment) -> None:
        """Replace the last weights by the mean."""
        context = moment.context
        if was_interrupted(self, context):
            return
        context.saver.wait()
        context.processes.wait()
        found = self._last_weights(context)
        if len(found) < self.last:
            logger.warning("There are only %d checkpoints to average, not %d.", len(found), self.last)
        if found:
            names = ", ".join(_checkpoints_of(context).path_of(step).name for step in found)
            context.used_weights.put_mean(list(found.values()), f"the mean of {names}")
            logger.info("The weights are now the mean of %s.", names)

    def _last_weights(self, context: TrainerContext) -> dict[int, dict[str, Any]]:
        """The weights of the last checkpoints by step, without those of interruptions and failures."""
        now, weights_at = context.global_step, _checkpoints_of(context).weights_at
        steps = sorted({step for policy in _policies(context) for step in policy.steps_at_end(now)})
        found = {step: weights_at(step) if step != now else context.used_weights.of_training() for step in steps}
        return dict([(step, weights) for step, weights in found.items() if weights is not None][-self.last :])

    def _warnings(self, policies: list[ModelCheckpoint]) -> list[str]:
        warnings = []
        kept = sum(policy.most_kept for policy in policies)
        if kept < self.last:
            warnings.append(
                f"CheckpointAverage averages the last {self.last} checkpoints, but ModelCheckpoint keeps only {kept}: "
                f"set its `keep_last` to {self.last}."
            )
        if any(policy.restore_best for policy in policies):
            warnings.append("ModelCheckpoint would replace the mean by the best weights: leave out `restore_best`.")
        elif any(policy.monitor is not None for policy in policies):
            warnings.append("The mean of the last checkpoints will be in RUN/final; RUN means the best checkpoint.")
        return warnings


def _policies(context: TrainerContext) -> list[ModelCheckpoint]:
    return [callback for callback in context.callbacks if isinstance(callback, ModelCheckpoint)]

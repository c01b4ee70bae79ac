"""When checkpoints are taken, and which of them are kept."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any

from sonosco_like.callbacks.directions import judged_by, lower_is_better
from sonosco_like.callbacks.endings import was_interrupted
from sonosco_like.callbacks.intervals import Every, epoch_is_over
from sonosco_like.callbacks.watching import evaluated_by_epoch, evaluated_by_validation
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.run_folder import BEST
from sonosco_like.serialization import serializable, state

logger = logging.getLogger(__name__)


@serializable
class ModelCheckpoint(AbstractCallback):
    """Saves the whole trainer, keeps what is wanted of it, and deletes the rest when a newer one is on disk.

    A checkpoint is taken `every` so many epochs, batches or minutes (`1ep`, `200ba`, `10min`); the last `keep_last` of
    these stay. With `monitor`, one is also taken whenever that measure is evaluated and is among the `keep_best` best
    so far; which way is better is declared by the metric. `best` in the run folder names the best one. With
    `save_at_end` one more is taken at the end, and with `restore_best` the model then gets the weights of the best.

    What is kept depends on the steps and measures of the run, and not on when the disk was done, nor on interruptions.
    Several of these in one trainer keep what any of them wants. The newest checkpoint stays in any case.
    """

    order: int = 1000
    every: str | None = "1ep"
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
            raise UsageError("`restore_best` needs a measure to tell the best by: give a `monitor`, such as val_loss.")
        self._every = Every(self.every) if self.every is not None else None
        self._asked_at: int | None = None

    def measures_needed(self) -> Iterable[str]:
        """The measure it ranks by."""
        return () if self.monitor is None else (self.monitor,)

    def steps_wanted(self) -> set[int]:
        """The steps of the checkpoints that it wants to keep."""
        return {*self.recent, *self.best}

    def steps_at_end(self, step: int) -> set[int]:
        """The steps of the checkpoints that it keeps once the training has ended with this step."""
        recent = [*(other for other in self.recent if other != step), step] if self._takes_end(step) else self.recent
        return {*(recent[-self.keep_last :] if self.keep_last else []), *self.best}

    @property
    def most_kept(self) -> int:
        """How many checkpoints there can be at the end."""
        taken = self._every is not None or self.save_at_end
        return (self.keep_last if taken else 0) + (self.keep_best if self.monitor is not None else 0)

    def _takes_end(self, step: int) -> bool:
        return self.save_at_end or step in self.recent

    # Decisions: in the training thread, before the checkpoint is taken, which therefore knows of them

    def on_batch_end(self, moment: Moment) -> None:
        """Take a checkpoint after so many batches or minutes."""
        if self._every is not None and self._every.after_batch(moment.context):
            self._take(moment.context)

    def on_validation_end(self, moment: Moment) -> None:
        """Rank a measure of the validation."""
        if self.monitor is not None and evaluated_by_validation(self.monitor, moment):
            self._rank(moment.context)

    def on_epoch_end(self, moment: Moment) -> None:
        """Take a checkpoint after so many epochs, and rank a measure of the training."""
        if self.monitor is not None and evaluated_by_epoch(self.monitor, moment):
            self._rank(moment.context)
        if self._every is not None and epoch_is_over(moment) and self._every.after_epoch(moment.context):
            self._take(moment.context)

    def on_training_end(self, moment: Moment) -> None:
        """Take the last checkpoint; an interrupted run has not come to its end."""
        context = moment.context
        if context.experiment is None or was_interrupted(self, context):
            return
        if self.save_at_end and context.global_step not in self.recent:
            self._take(context)
        if self.restore_best:
            self._restore_best(context)

    # Actions: once the checkpoint is on disk

    def on_attach(self, moment: Moment) -> None:
        """Refuse a run without a folder; finish what a crash kept the former process from doing."""
        context = moment.context
        if getattr(context.experiment, "checkpoints", None) is None:
            raise UsageError(
                "ModelCheckpoint needs a run folder to save checkpoints into: train with an Experiment, or leave it "
                "out and call trainer.save_checkpoint(path)."
            )
        self._say_which_weights(context)
        if context.processes.is_first:
            context.saver.wait()
            _settle(context.experiment.checkpoints, *_plan(context))

    def on_checkpoint_end(self, moment: Moment) -> None:
        """Have `best` pointed and what nobody wants deleted, when this checkpoint is on disk."""
        context = moment.context
        checkpoints = getattr(context.experiment, "checkpoints", None)
        if checkpoints is None or moment.error is not None:
            return
        if self._asked_at == context.global_step and moment.result == checkpoints.path_of(context.global_step):
            best, keep = _plan(context)
            context.saver.then(lambda: _settle(checkpoints, best, keep))

    def _say_which_weights(self, context: Any) -> None:
        """What is best by a measure of some weights is used with these."""
        if self.monitor is None or getattr(context, "averaging", None) is None or not context.processes.is_first:
            return
        if judged_by(self.monitor, context) == "plain" and self.monitor.startswith("val_"):
            logger.warning(
                "ModelCheckpoint ranks by %s, which judges the plain weights: what is best by it is used with these, "
                "and not with their average. To use the average, monitor val_ema_%s.",
                self.monitor, self.monitor.removeprefix("val_"),
            )  # fmt: skip

    def _take(self, context: Any) -> None:
        self._forget_failed(context)
        step = context.global_step
        earlier = [other for other in self.recent if other != step]
        self.recent = [*earlier, step][-self.keep_last :] if self.keep_last else []
        self._ask(context)

    def _rank(self, context: Any) -> None:
        assert self.monitor is not None
        value = context.performance_measures.get(self.monitor)
        if value is None or not math.isfinite(value):
            return
        self._forget_failed(context)
        sign = 1 if lower_is_better(self.monitor, context) else -1
        ranked = sorted({**self.best, context.global_step: float(value)}.items(), key=lambda each: sign * each[1])
        self.best = dict(ranked[: self.keep_best])
        if context.global_step in self.best:
            context.used_weights.judge(judged_by(self.monitor, context))
            self._ask(context)

    def _ask(self, context: Any) -> None:
        self._asked_at = context.global_step
        context.save_checkpoint()

    def _forget_failed(self, context: Any) -> None:
        """A checkpoint that could not be written takes the place of no other."""
        failed = {path.name for path in context.saver.failed}
        if failed:
            path_of = context.experiment.checkpoints.path_of
            self.recent = [step for step in self.recent if path_of(step).name not in failed]
            self.best = {step: value for step, value in self.best.items() if path_of(step).name not in failed}

    def _restore_best(self, context: Any) -> None:
        context.saver.wait()
        context.processes.wait()
        found = ((step, context.experiment.checkpoints.weights_at(step)) for step in self.best)
        step, weights = next(((step, weights) for step, weights in found if weights is not None), (0, None))
        if weights is None:
            logger.warning("No best weights are restored: no checkpoint was saved that %s could rank.", self.monitor)
            return
        name = context.experiment.checkpoints.path_of(step).name
        context.used_weights.put(weights, f"those of {name}", judged_by(str(self.monitor), context))
        logger.info("The model has the weights of %s, the best by %s.", name, self.monitor)


def _plan(context: Any) -> tuple[list[int], set[int]]:
    """The steps that `best` may name, in this order, and the steps to keep, as of now."""
    policies = [callback for callback in context.callbacks if isinstance(callback, ModelCheckpoint)]
    best = next((list(policy.best) for policy in policies if policy.monitor is not None), [])
    return best, {context.global_step}.union(*(policy.steps_wanted() for policy in policies))


def _settle(checkpoints: Any, best: list[int], keep: set[int]) -> None:
    found = next((path for path in map(checkpoints.path_of, best) if path.is_dir()), None)
    if found is not None:
        checkpoints.point(BEST, found)
    checkpoints.prune({checkpoints.path_of(step) for step in keep}, last=1)

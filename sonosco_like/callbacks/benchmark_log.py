"""The time until a model is good enough, as a log in the format of MLPerf."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from sonosco_like.callbacks.destination import RunFile, hyperparameters
from sonosco_like.callbacks.measures import FollowsMeasure, lower_is_better
from sonosco_like.errors import UsageError
from sonosco_like.events import Moment, Stop, TrainerContext, epoch_is_over
from sonosco_like.serialization import serializable, state

_MARK = ":::MLLOG "
Kind = Literal["POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"]


@serializable
class BenchmarkLog(FollowsMeasure):
    """Logs start and end of run, epochs and evaluations, and the time at which `monitor` reached `target`.

    Each line is `:::MLLOG` and a JSON object, as MLPerf's training rules define them (`run_start`, `epoch_start`,
    `eval_accuracy`, `run_stop` with its status). The metric declares which direction is better. When the target is
    reached, `seconds_to_target` is logged and kept as state, and the training stops if `stop` is true. `seconds` counts
    the time of the training: a resumed run continues from the `seconds` of its checkpoint.
    """

    path: str = "benchmark.log"
    folder: Path = Path()
    ranks: list[int] | None = field(default_factory=lambda: [0])
    monitor: str = "val_word_error_rate"
    target: float = 0.1
    stop: bool = False
    reached_at: int | None = state(None)
    seconds_to_target: float | None = state(None)
    size: int = state(0)

    def __post_init__(self) -> None:
        self.run_file = RunFile(self.path, self.folder)
        if not math.isfinite(self.target):
            raise UsageError(f"`target` must be a number that `{self.monitor}` can reach, got {self.target}.")
        self._file: BinaryIO | None = None
        self._lower = True

    def on_attach(self, moment: Moment) -> None:
        """Open the log, and cut off the lines that were written after the checkpoint."""
        if self._file is not None:
            return
        context = moment.context
        path = self.run_file.resolve(context)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._file.truncate(min(self.size, self._file.tell()))

    def on_training_start(self, moment: Moment) -> None:
        """Log that the run starts or is resumed."""
        context = moment.context
        self._lower = lower_is_better(self.monitor, context)
        if context.global_step:
            self._write("run_resume", "POINT_IN_TIME", context, context.global_step)
            return
        for name, value in hyperparameters(context).items():
            self._write(name, "POINT_IN_TIME", context, value)
        self._write("run_start", "INTERVAL_START", context)

    def on_epoch_start(self, moment: Moment) -> None:
        """Log the start of an epoch, unless the epoch is resumed."""
        if not moment.context.batches_done:
            self._write("epoch_start", "INTERVAL_START", moment.context)

    def on_epoch_end(self, moment: Moment) -> None:
        """Log the end of an epoch."""
        super().on_epoch_end(moment)
        if epoch_is_over(moment):
            self._write("epoch_stop", "INTERVAL_END", moment.context)

    def on_validation_start(self, moment: Moment) -> None:
        """Log the start of an evaluation."""
        self._write("eval_start", "INTERVAL_START", moment.context)

    def on_validation_end(self, moment: Moment) -> None:
        """Log the end of an evaluation; only a complete one is compared with the target."""
        self._write("eval_stop", "INTERVAL_END", moment.context)
        super().on_validation_end(moment)

    def update(self, value: float, context: TrainerContext) -> None:
        """Log the measure, and whether it is good enough."""
        self._write("eval_accuracy", "POINT_IN_TIME", context, value, measure=self.monitor)
        good = value <= self.target if self._lower else value >= self.target
        if good and self.reached_at is None:
            self.reached_at, self.seconds_to_target = context.global_step, context.seconds
            self._write("seconds_to_target", "POINT_IN_TIME", context, context.seconds, target=self.target)
            if self.stop:
                raise Stop(f"{self.monitor} has reached the target {self.target:g}")

    def on_checkpoint_start(self, moment: Moment) -> None:
        """Flush the log to disk: a checkpoint that survives a power failure must not count lines that were lost."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def on_training_end(self, moment: Moment) -> None:
        """Log the end of the run, with the status `success` if the target was reached."""
        self._end(moment.context, "success" if self.reached_at is not None else "aborted")

    def on_error(self, moment: Moment) -> None:
        """Log that the run failed."""
        self._end(moment.context, "aborted")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _end(self, context: TrainerContext, status: str) -> None:
        self._write("run_stop", "INTERVAL_END", context, status=status)

    def _write(self, key: str, kind: Kind, context: TrainerContext, value: Any = None, **more: Any) -> None:
        if self._file is None:
            return
        place = {"epoch": context.epoch, "step": context.global_step, "seconds": round(context.seconds, 3)}
        entry = {
            "namespace": "",
            "time_ms": round(time.time() * 1000),
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": {**place, **more},
        }
        line = (_MARK + json.dumps(entry, default=str) + "\n").encode()
        self._file.write(line)
        self._file.flush()
        self.size += len(line)

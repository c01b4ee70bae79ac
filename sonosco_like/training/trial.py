"""How long a training takes on this machine: a few of its batches are trained, and a batch of validation is decoded."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sonosco_like.errors import UsageError
from sonosco_like.process import resident_memory
from sonosco_like.training.batches import memory_errors_as_usage_errors, to_device
from sonosco_like.training.trainer import ModelTrainer

_PLACES = (0.5, 0.9, 0.1, 0.7, 0.3)  # of the batches tried, in the order of their length
_ROUNDS = 3
_OVERHEAD = 1.05  # logs, checkpoints and pictures


@dataclass
class TrialTimes:
    """Seconds that parts of a training take, estimated from `batches` that were timed; memory in bytes.

    ```
    step        a batch: forward, backward, change of the weights
    loading     a batch by one worker: reading, augmentation, features
    validation  the whole validation set
    ```
    """

    step: float
    loading: float
    validation: float
    batches_per_epoch: int
    workers: int
    memory: int
    batches: int

    @property
    def epoch(self) -> float:
        """Seconds of an epoch of training; workers load while the model computes."""
        apart = self.loading / self.workers if self.workers else 0.0
        step = max(self.step, apart) if self.workers else self.step + self.loading
        return step * self.batches_per_epoch * _OVERHEAD


def time_training(trainer: ModelTrainer, most_seconds: float) -> TrialTimes:
    """Train a few batches of all lengths once, and again for about so many seconds.

    The weights change: the trainer is of no use afterwards. Each batch counts with the fastest of its rounds, which
    other programs on the machine have disturbed least.
    """
    begin = time.perf_counter()
    trainer.callbacks = []
    trainer.parts.build()
    loader = trainer.train_data_loader
    loader.dataset.prepare()
    seconds = loader.plan.padded_seconds
    order = np.argsort(seconds, kind="stable")
    _train_batch(trainer, loader, int(order[-1]))  # the largest: it must fit into memory, and it warms up
    loading: dict[int, float] = {}
    steps: dict[int, float] = {}
    places = list(dict.fromkeys(int(order[int(share * (len(order) - 1))]) for share in _PLACES))
    for place in places * _ROUNDS:
        if len(steps) == len(places) and time.perf_counter() - begin > most_seconds:
            break
        loaded, step = _train_batch(trainer, loader, place)
        loading[place] = min(loaded, loading.get(place, loaded))
        steps[place] = min(step, steps.get(place, step))
    share = float(seconds.mean()) / float(np.mean([seconds[place] for place in steps]))
    return TrialTimes(
        step=share * float(np.mean(list(steps.values()))),
        loading=share * float(np.mean(list(loading.values()))),
        validation=_time_validation(trainer),
        batches_per_epoch=len(loader.plan),
        workers=loader.num_workers,
        memory=_peak_memory(trainer.parts.device),
        batches=len(steps),
    )


class _Stopwatch:
    """Seconds from one lap to the next.

    On a CPU other programs make the clock run ahead. Then the processor time of this process is the shorter one, and
    nearer to what a training takes when the machine is free.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_cpu = device.type == "cpu"
        self._clock, self._processor = time.perf_counter(), time.process_time()

    def lap(self) -> float:
        clock, processor = time.perf_counter(), time.process_time()
        passed, worked = clock - self._clock, processor - self._processor
        self._clock, self._processor = clock, processor
        return min(passed, worked) if self._is_cpu else passed


def _train_batch(trainer: ModelTrainer, loader: Any, place: int) -> tuple[float, float]:
    """Train one batch of the plan; returns the seconds for loading it and for the step."""
    watch = _Stopwatch(trainer.parts.device)
    dataset = loader.dataset
    batch = dataset.batch(dataset.usable[loader.plan[place]], 0, loader.epoch)
    if batch is None:
        raise UsageError(f"No utterance of batch {place} can be used: sonosco data stats {dataset.manifest}")
    loaded = watch.lap()
    batch = to_device(batch, trainer.parts.device)
    with memory_errors_as_usage_errors(batch):
        with trainer.parts.autocast():
            loss = trainer.compute_loss(trainer.forward(batch), batch)
        trainer.backward(loss)
        trainer.optimizer_step()
        loss.item()  # the device has finished
    return loaded, watch.lap()


def _time_validation(trainer: ModelTrainer) -> float:
    """Seconds of a validation, from its batch of medium length."""
    loader = trainer.val_data_loader
    seconds = loader.plan.padded_seconds
    place = int(np.argsort(seconds, kind="stable")[len(seconds) // 2])
    watch = _Stopwatch(trainer.parts.device)
    batch = loader.dataset.batch(loader.dataset.usable[loader.plan[place]], 0, 0)
    if batch is None:
        return 0.0
    with trainer.evaluation_mode():
        trainer.validator.evaluate_batch(to_device(batch, trainer.parts.device))
    return watch.lap() * float(seconds.sum() / seconds[place])


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resident_memory()[1] or 0

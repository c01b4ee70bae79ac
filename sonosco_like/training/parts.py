"""What the trainer's parts know of one another."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from sonosco_like.events import Duration, Hooks, ListsCallbacks, Stop
from sonosco_like.training.averaging import WeightAverage
from sonosco_like.training.judging import Prediction
from sonosco_like.training.last_good import LastGood
from sonosco_like.training.loaders import Loaders
from sonosco_like.training.measures import PerformanceMeasures
from sonosco_like.training.optimization import Optimization
from sonosco_like.training.processes import Processes
from sonosco_like.training.ranks import RankStates
from sonosco_like.training.saving import CheckpointSaver
from sonosco_like.training.undoing import Undo
from sonosco_like.training.used_weights import UsedWeights


class TrainerParts(ListsCallbacks):
    """The attributes of ModelTrainer that the parts of it use.

    `ModelTrainer.init` gives all of them their first values. After that `Preparing` sets what is built (`model`,
    `optimizer`, `scheduler`, loaders, `hooks`, `_inference`, `_optimization`, `_last_good`, `_undo`), `Validating`
    `_validated_at` and `_predictions`, `Checkpointing` what is restored, and the loop all the rest.

    `_inference` is the model as it is called: compiled, where that is wanted. `_ranks` is what each process has alone.
    """

    model: nn.Module
    loss: Callable[..., Any]
    train_data_loader: Any
    val_data_loader: Any
    test_data_loader: Any
    decoder: Any
    optimizer: Any
    scheduler: Any
    metrics: list[Callable[..., Any]]
    callbacks: list[Any]
    device: torch.device | None
    averaging: WeightAverage | None
    accumulate_gradients: int
    precision: Literal["float32", "bfloat16", "float16"]
    non_finite: Literal["stop", "skip", "rollback", "ignore"]
    compile: str | None
    gradient_checkpointing: list[str]
    sync_batch_norm: bool
    epoch: int
    step: int
    global_step: int
    batches_done: int
    epoch_read: bool
    batch_unfinished: bool
    rollbacks: int
    seconds: float
    saver: CheckpointSaver

    experiment: Any
    processes: Processes
    performance_measures: PerformanceMeasures
    hooks: Hooks
    seconds_in_callbacks: dict[str, float]
    _device: torch.device
    _inference: nn.Module
    _optimization: Optimization | None
    _last_good: LastGood | None
    _undo: Undo | None
    _original_fields: dict[str, Any]
    _stop: Stop | None
    _fetched: bool
    _validated_at: int
    _ranks: RankStates
    _checkpoint_asked: Path | Literal[True] | None
    _listening: bool
    _norm_is_read: bool
    _vocabulary: Any
    _predictions: list[tuple[Any, list[Prediction]]]
    _test_interval: Duration | None
    _clock: float
    _cheap_metrics: list[Callable[..., Any]]

    @cached_property
    def _loaders(self) -> Loaders:
        return Loaders()

    @cached_property
    def used_weights(self) -> UsedWeights:
        """Which weights this trainer is used with once it is saved."""
        return UsedWeights(self)

    @property
    def _opt(self) -> Optimization:
        assert self._optimization is not None, "the trainer builds its optimizer before the first batch"
        return self._optimization

    def _mark_good(self, settings: bool = False) -> None:
        """Take this as the moment to which a failure goes back."""
        if self._last_good is not None:
            self._last_good.remember()
        if self._undo is not None:
            self._undo.begin(settings)

    def _go_no_more_back(self) -> None:
        """Take what was heard so far as done, whatever fails later."""
        if self._undo is not None:
            self._undo.end()

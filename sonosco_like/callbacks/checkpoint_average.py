"""The mean of the last checkpoints, which often hears better than the last one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.serialization import load, serializable

logger = logging.getLogger(__name__)


@serializable
class CheckpointAverage(AbstractCallback):
    """Gives the model, when a run has come to its end, the mean of the weights of its last checkpoints.

    `last` is how many of them; ModelCheckpoint must keep that many. The checkpoints stay as they are: `final/` holds
    the mean, and what hears the end of the training after this callback judges it.
    """

    last: int = 5

    def __post_init__(self) -> None:
        if self.last < 2:
            raise UsageError(f"`last` must be at least 2, or there is nothing to average; got {self.last}.")

    def on_attach(self, moment: Moment) -> None:
        """A run without a folder has no checkpoints."""
        if moment.context.experiment is None:
            raise UsageError("CheckpointAverage needs a run folder with checkpoints: train with an Experiment.")

    def on_training_end(self, moment: Moment) -> None:
        """Put the mean in the place of the last weights."""
        context = moment.context
        if getattr(context.experiment, "interrupted", False):
            return
        context.saver.wait()
        folders = context.experiment.checkpoints.all()[-self.last :]
        if len(folders) < self.last:
            logger.warning("Only %d checkpoints are there to average, not %d.", len(folders), self.last)
        if folders:
            context.model.load_state_dict(mean_weights(folders))
            logger.info("The weights are now the mean of %s.", ", ".join(folder.name for folder in folders))


def mean_weights(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the model weights of some checkpoints; of what cannot be averaged, such as counts, the last one's."""
    total: dict[str, Tensor] = {}
    last: dict[str, Tensor] = {}
    for folder in checkpoints:
        trainer: Any = load(folder)
        last = trainer.model.state_dict()
        for name, weight in last.items():
            if weight.is_floating_point():
                total[name] = total[name] + weight.double() if name in total else weight.double()
    means = {name: (weight / len(checkpoints)).to(last[name].dtype) for name, weight in total.items()}
    return {name: means.get(name, torch.clone(weight)) for name, weight in last.items()}

"""What a callback may use of the trainer that calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn, optim

    from sonosco_like.records import Prediction


class ProcessGroup(Protocol):
    """The processes that train one model together; without `torchrun` there is one."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""

    @property
    def size(self) -> int:
        """The number of processes that train together."""

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files."""

    def wait(self) -> None:
        """Return when all processes have called this."""

    def any(self, *flags: bool) -> list[bool]:
        """For each flag, whether any process has set it."""


class Saver(Protocol):
    """Writes checkpoints in a separate thread."""

    @property
    def failed(self) -> set[Path]:
        """The checkpoints that could not be written."""

    def wait(self) -> None:
        """Return when every checkpoint is on disk, or has failed."""

    def then(self, action: Callable[[], None]) -> None:
        """Call a function once the last checkpoint is on disk; never if it failed."""


class ExportedWeights(Protocol):
    """The weights with which a saved trainer is used: those of the training, or others that a callback chose."""

    def note_best(self, kind: str) -> None:
        """Note which weights (`plain`, `averaged`) were evaluated by the measure that makes this step the best."""

    def put(self, weights: Mapping[str, dict[str, Any]], origin: str, kind: str = "") -> None:
        """Use these weights, by the name of the part that has them; `origin` says where they come from."""

    def put_mean(self, weights: list[Mapping[str, dict[str, Any]]], origin: str) -> None:
        """Use the mean of several weights."""

    def of_training(self) -> dict[str, dict[str, Any]]:
        """The weights that the training itself ended with."""


class RunContext(Protocol):
    """The experiment with its run folder."""

    @property
    def name(self) -> str:
        """The name of the experiment."""

    @property
    def folder(self) -> Path:
        """The run folder."""

    @property
    def checkpoints(self) -> Any:
        """The checkpoints of the run folder."""


class TrainerContext(Protocol):
    """The trainer as a callback sees it: `context` in a call after a batch, `moment.context` in a hook."""

    # Where the training is

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""

    @property
    def step(self) -> int:
        """The batch in the epoch, from 0."""

    @property
    def global_step(self) -> int:
        """The number of all batches done."""

    @property
    def batches_done(self) -> int:
        """The number of batches done in this epoch."""

    @property
    def seconds(self) -> float:
        """The seconds that the training has lasted, over all its starts."""

    @property
    def seconds_in_callbacks(self) -> Mapping[str, float]:
        """The seconds that each callback took, by its name."""

    @property
    def performance_measures(self) -> Mapping[str, float]:
        """The running averages of this epoch, and the results of the last validation."""

    # What it was made from

    epochs: int
    max_duration: str | None
    decoder: Any
    metrics: list[Callable[..., Any]]
    callbacks: list[Any]

    @property
    def loss(self) -> Callable[..., Any]:
        """The loss function."""

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""

    @property
    def optimizer(self) -> optim.Optimizer:
        """The optimizer that is used."""

    @property
    def scheduler(self) -> Any:
        """The schedule of the learning rate, or None."""

    @property
    def averaging(self) -> Any:
        """The moving average of the weights, or None."""

    @property
    def train_data_loader(self) -> Any:
        """The loader of the training data."""

    @property
    def val_data_loader(self) -> Any:
        """The validation data: a loader, loaders by name, or None."""

    @property
    def test_data_loader(self) -> Any:
        """The loader of the test data, or None."""

    @property
    def validation_sets(self) -> Mapping[str | None, Any]:
        """The loaders of validation by name; the name of a single one is None."""

    @property
    def vocabulary(self) -> Any:
        """The tokenizer of the data."""

    @property
    def experiment(self) -> RunContext | None:
        """The experiment that this training belongs to; None for a trainer without a run folder."""

    @property
    def processes(self) -> ProcessGroup:
        """The processes that train together."""

    @property
    def saver(self) -> Saver:
        """The object that writes the checkpoints."""

    @property
    def used_weights(self) -> ExportedWeights:
        """The weights with which this trainer is used when it is saved."""

    # What a callback may ask for

    def log(self, values: Mapping[str, Any]) -> None:
        """Log named values: the destinations write them."""

    def update_metric(self, name: str, value: float | Tensor) -> None:
        """Add a measure to the others, and log it."""

    def stop_training(self, reason: str = ...) -> None:
        """End the training after this batch."""

    def save_checkpoint(self, path: str | Path | None = None) -> None:
        """Save the whole trainer when this batch or epoch is complete."""

    def evaluate(self, loader: Any) -> dict[str, float]:
        """Loss and metrics on the data of a loader."""

    def predict(self, loader: Any) -> Sequence[Prediction]:
        """The prediction for each example of a loader."""

    def evaluation_mode(self) -> AbstractContextManager[None]:
        """The model without dropout and without gradients inside the block."""

    def fire(self, event: str, **args: Any) -> Any:
        """Fire an event that the class of the trainer names in `events`."""

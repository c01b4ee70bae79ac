"""The base class of callbacks and what their hooks get: a `Moment`, with the trainer as its `context`.

A `Stop` that a hook raises ends a training.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

if TYPE_CHECKING:
    from torch import Tensor, nn, optim

    from sonosco_like.records import Prediction

Scope = Literal["batch", "epoch", "training"]


@dataclass(slots=True)
class Moment:
    """One event: its name, the trainer it happens in, and what is about to happen or has happened.

    At the start of a stage `args` holds its arguments by name; a hook may edit them. At its end `result` holds what it
    returned; a hook may replace it. `error` is the exception an `error` event is about, or the Stop that ended a stage.
    """

    event: str
    context: TrainerContext
    args: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: BaseException | None = None


class Stop(Exception):  # noqa: N818  (not an error: an end that was asked for)
    """Raised by a callback to end the training, or only the epoch or the batch.

    It takes effect once every callback was called for the event. Outside of an epoch any scope ends the training.
    """

    def __init__(self, reason: str = "", scope: Scope = "training") -> None:
        if scope not in get_args(Scope):
            raise ValueError(f"The scope of a Stop is one of {', '.join(get_args(Scope))}, got {scope!r}.")
        super().__init__(reason)
        self.reason = reason
        self.scope = scope
        self.agreed = False  # whether all processes that train together know of it


@dataclass(kw_only=True, eq=False)
class AbstractCallback(ABC):
    """Listens to a run. Decorate your own with `@serializable`, so that it is saved with the run.

    Override `__call__` for the end of every batch, `on_<event>(moment)` for any other event, or `on_event(moment)`
    for all. Callbacks are called in the order of their `order`, then of the list they are in. `ranks` are the
    processes of a distributed run in which it listens. `on_failure` says what an exception in it means: the end of the
    run (`raise`), a warning (`warn`), or a warning after which it is not called any more (`disable`).
    """

    order: int = 0
    ranks: list[int] | None = None
    on_failure: Literal["raise", "warn", "disable"] = "raise"

    def __call__(
        self, epoch: int, step: int, performance_measures: Mapping[str, float], context: TrainerContext
    ) -> None:
        """Called after every batch with the epoch, the batch in it (from 0), the running averages and the trainer."""

    def close(self) -> None:
        """Called once at the end of the run, also after an error, or when the callback is removed during the run."""

    def measures_needed(self) -> Iterable[str]:
        """The names of the measures that it reads. A measure that is not computed is refused when the run starts.

        `gradient_norm`, which costs time, is computed if a callback names it here, or does not override this method.
        """
        return ()

    def measures_given(self) -> Mapping[str, bool]:
        """The measures that it adds with `context.update_metric`: by name, whether lower is better."""
        return {}

    def texts_needed(self) -> Iterable[Literal["hypotheses", "teacher_forced"]]:
        """The texts that it reads at `prediction_end`; each text is decoded once for all callbacks."""
        return ()

    def epoch_limit(self) -> int | None:
        """The batches after which it ends every epoch; None if it does not shorten epochs."""
        return None


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

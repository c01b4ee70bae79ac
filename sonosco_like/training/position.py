"""The position of a training, and its end."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

from sonosco_like.errors import UsageError, as_sentence
from sonosco_like.events import Duration, epoch_batches, epochs_done, has_lasted
from sonosco_like.serialization import serializable

T = TypeVar("T")
Phase = Literal["fetching", "training", "counted", "complete", "read"]


@serializable
class Position:
    """Where a training is. Only its own methods change it; the trainer calls them in the order of its loop.

    `epoch` and `step` (the batch in the epoch) are those under way, both from 0. `batches_done` of this epoch and
    `global_step` in all are complete or counted. `validated_at` is the global step of the last validation. `seconds` is
    how long the training has lasted. `phase` says what happened to the batch `step`:

    | phase | |
    |---|---|
    | fetching | it is awaited |
    | training | the loader gave it; a failure takes it back |
    | counted | the weights may have changed by it; its validation and its end are still due |
    | complete | every callback was called for its end |
    | read | there is no such batch: the epoch has no more data |
    """

    epoch: int = 0
    step: int = 0
    batches_done: int = 0
    global_step: int = 0
    validated_at: int = -1
    seconds: float = 0.0
    phase: Phase = "complete"

    @property
    def is_in_batch(self) -> bool:
        """Whether a batch is under way that is not counted yet."""
        return self.phase == "training"

    @property
    def is_read(self) -> bool:
        """Whether the epoch has no more data."""
        return self.phase == "read"

    def await_batch(self) -> None:
        """Begin to wait for the next batch of the epoch."""
        self.step, self.phase = self.batches_done, "fetching"

    def receive_batch(self) -> None:
        """Note that the loader gave the batch."""
        self.phase = "training"

    def end_data(self) -> None:
        """Note that the epoch has no more batches, or that a Stop leaves out the rest."""
        self.phase = "read"

    def count_batch(self, seconds: float | None = None) -> None:
        """The batch is spent: what fails from now on does not take it back. `seconds` sets the clock."""
        self.batches_done += 1
        self.global_step += 1
        self.phase = "counted"
        if seconds is not None:
            self.seconds = seconds

    def complete_batch(self) -> None:
        """Note that all callbacks of the end of the batch were called."""
        if self.phase == "counted":
            self.phase = "complete"

    def take_back_batch(self) -> None:
        """Give a batch that was not counted back to the loader."""
        if self.phase in ("fetching", "training"):
            self.phase = "complete"

    def return_to_batch(self) -> None:
        """Return to the last counted batch, whose end is still due."""
        self.step = self.batches_done - 1

    def end_epoch(self) -> None:
        """Go to the beginning of the next epoch."""
        self.epoch, self.step, self.batches_done, self.phase = self.epoch + 1, 0, 0, "complete"

    def note_validation(self, done: bool = True) -> None:
        """Note that this step was validated; or that it was not, so that a continued run validates it."""
        self.validated_at = self.global_step if done else -1

    def set_clock(self, seconds: float) -> None:
        """Remember how long the training has lasted."""
        self.seconds = seconds


class ReadThrough(Generic[T]):
    """An attribute of a trainer that belongs to one of its objects: users can read it there, and cannot assign it."""

    def __init__(self, path: str) -> None:
        self._read: Callable[[Any], T] = attrgetter(path)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, trainer: Any, owner: type) -> T:
        if trainer is None:
            raise AttributeError(self._name)  # only a trainer has it, not its class
        return self._read(trainer)

    def __set__(self, trainer: Any, value: T) -> None:
        raise AttributeError(f"`{self._name}` cannot be assigned: the training itself keeps it.")


def upgrade_position(version: int, state: dict[str, Any]) -> dict[str, Any]:
    """The state of a trainer of version 1, which had no `Position`, as that of version 2."""
    counted, read = state.pop("batch_unfinished", False), state.pop("epoch_read", False)
    numbers = {name: state.pop(name) for name in ("epoch", "step", "batches_done", "global_step", "seconds")}
    state.pop("rollbacks", None)  # it was 0 in every checkpoint
    validated_at = (state.get("state_dict") or {}).get("validated_at", -1)
    phase: Phase = "counted" if counted else "read" if read else "complete"
    return {"position": {**numbers, "validated_at": validated_at, "phase": phase}, **state}


class Limit:
    """The longest duration of a training: epochs, batches, seconds, or a share of all batches."""

    def __init__(self, text: str | None) -> None:
        """Raises UsageError if the text is no duration; without a text there is no limit."""
        self._duration = Duration.parse(text) if text else None

    def is_reached(self, trainer: Any) -> bool:
        """Whether the training has lasted that long."""
        if self._duration is None:
            return False
        if self._duration.unit == "dur":  # here the whole is all epochs: this limit itself shortens the training
            return self._duration.reached(0, 0, 0, epochs_done(trainer) / trainer.epochs)
        return has_lasted(self._duration, trainer)

    def ends_training(self, trainer: Any) -> bool:
        """Whether all processes end here, because one of them reached the limit; each has its own clock."""
        reached = self.is_reached(trainer)
        if self._duration is not None and self._duration.unit == "s":
            return bool(trainer.processes.any(reached)[0])
        return reached

    def cuts_epoch(self, trainer: Any) -> bool:
        """Whether the epoch under way ends here; a share that is over with the epoch lets it come to its own end."""
        if self._duration is None or self._duration.unit == "ep" or not self.ends_training(trainer):
            return False
        return self._duration.unit != "dur" or trainer.batches_done != epoch_batches(trainer)


class ValidationInterval:
    """How long it is from one validation to the next: batches, whole epochs, or a share of the training."""

    def __init__(self, test_step: int | str | None) -> None:
        """Raises UsageError for what counts no batches; None is the end of every epoch."""
        self._every: Duration | None = None
        if test_step is None:
            return
        if isinstance(test_step, int) and test_step < 1:
            raise UsageError(f"`test_step` must be at least 1, or null for epoch ends only, got {test_step}.")
        self._every = Duration.parse(test_step if isinstance(test_step, str) else f"{test_step}ba")
        if self._every.unit == "s":
            raise UsageError(
                f"`test_step` counts batches (500ba), epochs (2ep) or a share of all (0.1dur), got {test_step!r}."
            )

    def count(self, batches_of: Callable[[Duration], int]) -> None:
        """Turn a share of the training into batches. Raises UsageError if their number is not known."""
        if self._every is None or self._every.unit != "dur":
            return
        try:
            self._every = Duration(max(1, batches_of(self._every)), "ba")
        except UsageError as error:
            raise UsageError(
                f"`test_step: {self._every}` cannot be counted: {as_sentence(error)} Count batches (500ba)."
            ) from None

    def is_due(self, position: Position, at_epoch_end: bool) -> bool:
        """Whether a validation is due at a position, and was not done there yet."""
        every = self._every
        if not at_epoch_end:  # the question of every batch comes first
            is_due = every is not None and every.unit == "ba" and position.global_step % int(every.value) == 0
        else:
            is_due = every is None or every.unit != "ep" or (position.epoch + 1) % int(every.value) == 0
        return is_due and position.validated_at != position.global_step

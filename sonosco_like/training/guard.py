"""After a failed batch: the batch is left out or undone, or the weights of a checkpoint are restored."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.errors import SonoscoError
from sonosco_like.events import Listeners
from sonosco_like.serialization import is_state, load
from sonosco_like.training.batches import describe_batch
from sonosco_like.training.randomness import generator_states, restore_generators

# Events after which nothing is undone: all listeners were called for them, or the weights have changed.
_FINAL = {
    "attach", "batch_end", "checkpoint_end", "checkpoint_start", "error", "optimizer_step_end", "training_end",
    "training_start",
}  # fmt: skip
_PLAIN = (type(None), bool, int, float, str)


class Undo:
    """Restores the measures, and the states of all listeners, of the last good moment.

    A run that continues from that moment fires the later events again. The state of a listener is copied before it
    is called for its first event after the moment, so that other listeners cost nothing. A listener with much state can
    have a method `remember_state`, which returns a function that restores the present state.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        parts = [trainer.loss, trainer.decoder, *trainer.metrics, *trainer.parts.model.modules()]
        self._others = [(part, names) for each in parts for part in _with_state(each) if (names := _state_fields(part))]
        self._parts: dict[int, list[Any]] = {}  # of each listener, those with state
        self._kept: dict[int, list[Callable[[], None]]] = {}
        self._is_active = False

    def watch(self, listeners: Listeners) -> None:
        """Copy the state of a listener before it is called."""
        listeners.call_before(self._keep, except_at=_FINAL)

    def begin(self, settings: bool = False) -> None:
        """Mark the present moment as good; with `settings`, copy those of the optimizer and its schedule too."""
        trainer = self._trainer
        self._kept.clear()
        self._is_active = True
        self._was_read = trainer.position.is_read
        self._measures = trainer.performance_measures.remember_state()
        self._states = [_remembered_fields(part, names) for part, names in self._others]
        optimization = trainer.parts.optimization
        self._groups = [dict(group) for group in optimization.optimizer.param_groups]
        has_state = settings and optimization.scheduler is not None
        self._schedule = copy.deepcopy(optimization.scheduler.state_dict()) if has_state else None

    def end(self) -> None:
        """Drop the copies: nothing before this moment is undone any more."""
        self._kept.clear()
        self._is_active = False

    def restore(self) -> bool:
        """Go back to the good moment, but not to before the end of the data, because a run does not read it twice."""
        trainer = self._trainer
        if not self._is_active or trainer.position.is_read != self._was_read:
            return False
        for take_back in (*self._states, *(each for kept in self._kept.values() for each in kept), self._measures):
            take_back()
        for group, settings in zip(trainer.optimizer.param_groups, self._groups, strict=True):
            group.update({name: value for name, value in settings.items() if name != "params"})
        if self._schedule is not None:
            trainer.scheduler.load_state_dict(self._schedule)
        self.end()
        return True

    def _keep(self, owner: Any) -> None:
        if not self._is_active or id(owner) in self._kept:
            return
        if owner is self._trainer:
            self._kept[id(owner)] = [_remembered_fields(owner, _own_fields(owner))]
            return
        if id(owner) not in self._parts:
            self._parts[id(owner)] = [part for part in _with_state(owner) if _has_state(part)]
        self._kept[id(owner)] = [_remembered_part(part) for part in self._parts[id(owner)]]


def _has_state(part: Any) -> bool:
    return hasattr(part, "load_state_dict") or bool(_state_fields(part))


def _remembered_part(part: Any) -> Callable[[], None]:
    if hasattr(part, "remember_state"):
        take_back: Callable[[], None] = part.remember_state()
        return take_back
    fields = _remembered_fields(part, _state_fields(part))
    if isinstance(part, nn.Module) or not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
        return fields
    content = copy.deepcopy(part.state_dict())

    def restore() -> None:
        fields()
        part.load_state_dict(content)

    return restore


def _remembered_fields(part: Any, names: Iterable[str]) -> Callable[[], None]:
    values = {name: _copied(getattr(part, name)) for name in names}

    def restore() -> None:
        for name, value in values.items():
            setattr(part, name, value)

    return restore


def _copied(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else copy.deepcopy(value)


def _state_fields(part: Any) -> list[str]:
    fields = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    return [field.name for field in fields if is_state(field)]


def _own_fields(trainer: Any) -> list[str]:
    """The state fields of a user's trainer class; those of `ModelTrainer` belong to the loop."""
    ours = next(cls for cls in type(trainer).__mro__ if cls.__module__.startswith(__package__) and _state_fields(cls))
    return [name for name in _state_fields(trainer) if name not in _state_fields(ours)]


def _with_state(owner: Any) -> Iterator[Any]:
    """An object and the objects that it was made from, as far as they may have state, without the parts of a model."""
    if isinstance(owner, (list, tuple)):
        for each in owner:
            yield from _with_state(each)
    elif isinstance(owner, dict):
        yield from _with_state(list(owner.values()))
    elif dataclasses.is_dataclass(owner) and not isinstance(owner, type):
        yield owner
        if not isinstance(owner, nn.Module):
            for field in dataclasses.fields(owner):
                if not is_state(field) and not isinstance(getattr(owner, field.name, None), nn.Module):
                    yield from _with_state(getattr(owner, field.name, None))
    elif hasattr(owner, "load_state_dict") and not isinstance(owner, (nn.Module, type)):
        yield owner


logger = logging.getLogger(__name__)

_MOST_ROLLBACKS = 3  # to one checkpoint, before that itself is taken for the cause


class NonFiniteLossError(SonoscoError):
    """The loss of a batch is not a number; the message names the utterances of the batch."""


class Guard:
    """Remembers the last good moment of a trainer and goes back to it when a batch fails.

    It is armed where something can be saved or left out: in a run folder, or with `non_finite` skip or rollback.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._rollbacks = 0  # since the last checkpoint
        self._last_good: LastGood | None = None
        self._undo: Undo | None = None

    def arm(self) -> None:
        """Begin to keep copies, before the first batch of a run."""
        trainer = self._trainer
        in_run_folder = trainer.experiment is not None
        is_armed = in_run_folder or trainer.non_finite in ("skip", "rollback")
        self._last_good = LastGood(trainer.parts.model, trainer.train_data_loader) if is_armed else None
        self._undo = Undo(trainer) if in_run_folder else None
        if self._undo is not None:
            self._undo.watch(trainer.listeners)

    def mark_good(self, settings: bool = False) -> None:
        """Mark this moment as the one to restore after a failure; with `settings`, copy those of the optimizer too."""
        if self._last_good is not None:
            self._last_good.remember()
        if self._undo is not None:
            self._undo.begin(settings)

    def commit(self) -> None:
        """Do not undo the events so far, whatever fails later."""
        if self._undo is not None:
            self._undo.end()

    def note_checkpoint(self) -> None:
        """Remember that there is a new checkpoint to go back to."""
        self._rollbacks = 0

    def is_usable(self, loss: Tensor | float, batch: Any) -> bool:
        """Whether a loss can be used; if not, the action that `non_finite` names was done."""
        trainer = self._trainer
        usable = isinstance(loss, Tensor) or math.isfinite(loss)
        if trainer.processes.size > 1:
            usable = trainer.session.share_loss(usable)
        if usable:
            return True
        position = trainer.position
        value = "not a number in another process" if math.isfinite(loss) else str(float(loss))
        message = (
            f"The loss is {value} in epoch {position.epoch + 1}, batch {position.step + 1}, on a batch with "
            f"{describe_batch(batch)}."
        )
        if trainer.non_finite == "stop":
            raise NonFiniteLossError(f"{message} Look at these utterances, or set `non_finite` to skip or rollback.")
        assert self._last_good is not None
        self._last_good.restore_buffers()
        if trainer.non_finite == "rollback":
            self._roll_back(message)
        else:
            logger.warning("%s The batch is left out.", message)
        return False

    def save_last_good(self) -> None:
        """After a failure, save a checkpoint of the last good batch, if that can still be restored."""
        trainer = self._trainer
        if trainer.experiment is None or trainer.position.global_step == 0 or not trainer.processes.are_complete:
            return
        path = trainer.experiment.checkpoints.path_of(trainer.position.global_step)
        trainer.saver.wait()
        try:
            if self._undo_everywhere(path):
                trainer.write_checkpoint(path)
                logger.warning("The state after the last good batch was saved as %s.", path.name)
        except (SonoscoError, OSError) as error:
            logger.warning("The state after the last good batch could not be saved: %s", error)

    def _roll_back(self, reason: str) -> None:
        """Restore weights, optimizer and schedule of the newest checkpoint; the position in the data stays."""
        newest = self._newest_checkpoint()
        self._rollbacks += 1
        if newest is None or self._rollbacks > _MOST_ROLLBACKS:
            none = "there is no checkpoint to go back to"
            why = none if newest is None else f"{_MOST_ROLLBACKS} times back did not help"
            raise NonFiniteLossError(f"{reason} The run cannot be rolled back: {why}.")
        logger.warning("%s Back to the weights of %s.", reason, newest.name)
        saved: Any = load(newest)
        trainer = self._trainer
        trainer.parts.model.load_state_dict(saved.model.state_dict())
        trainer.parts.optimization.load_state_dict(saved.parts.optimization.state_dict())
        if trainer.averaging is not None:
            trainer.averaging.load_state_dict(saved.averaging.state_dict())

    def _newest_checkpoint(self) -> Path | None:
        """The newest checkpoint, as the first process sees it, which writes the checkpoints."""
        trainer = self._trainer
        trainer.saver.wait()
        newest = trainer.experiment.checkpoints.newest() if trainer.experiment is not None else None
        name = trainer.processes.from_first(newest.name if newest is not None else None)
        return None if name is None else trainer.experiment.checkpoints.folder / name

    def _undo_everywhere(self, path: Path) -> bool:
        """Whether every process is back at the end of the same batch, and this batch is not saved yet."""
        processes = self._trainer.processes
        if processes.size == 1:
            return not path.exists() and self._undo_batch()
        ready = self._undo_batch()
        found = processes.gather([self._trainer.position.global_step, ready, path.exists()])
        steps = {step for step, _, _ in found}
        return len(steps) == 1 and all(ready for _, ready, _ in found) and not found[0][2]

    def _undo_batch(self) -> bool:
        """Go back to the end of the last counted batch. False if its gradients are mixed with those of a new one."""
        trainer = self._trainer
        if not trainer.parts.optimization.undo():
            return False
        went_back = self._undo is not None and self._undo.restore()
        if (went_back or trainer.position.is_in_batch) and self._last_good is not None:
            self._last_good.restore()
        trainer.position.take_back_batch()
        return True


class LastGood:
    """A copy of what a batch changes before its gradients are used: generators, buffers, position in the data."""

    def __init__(self, model: nn.Module, loader: Any) -> None:
        self._loader = loader
        self._can_seek = hasattr(loader, "position") and hasattr(loader, "seek")
        self._has_state = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self._buffers = list(model.buffers())
        self._copies: list[Tensor] = [buffer.clone() for buffer in self._buffers]
        self.remember()

    def remember(self) -> None:
        """Copy the present state."""
        self._generators = generator_states()
        self._place = self._place_in_the_data()
        if self._buffers:
            torch._foreach_copy_(self._copies, self._buffers)

    def restore_buffers(self) -> None:
        """Restore the buffers that a forward pass changed."""
        if self._buffers:
            torch._foreach_copy_(self._buffers, self._copies)

    def restore(self) -> None:
        """Restore the copied state."""
        self.restore_buffers()
        restore_generators(self._generators)
        if self._can_seek:
            self._loader.seek(self._place)
        elif self._place is not None:
            self._loader.load_state_dict(copy.deepcopy(self._place))

    def _place_in_the_data(self) -> Any:
        """A position, which costs nothing to ask for; of a loader without one a copy of its state."""
        if self._can_seek:
            return self._loader.position
        return copy.deepcopy(self._loader.state_dict()) if self._has_state else None

"""What has been heard and counted since the last good moment, and how to take it back."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn

from sonosco_like.events import Hooks
from sonosco_like.serialization.definition import is_state

# Events after which nothing is taken back: everybody has heard them, or the weights have changed.
_FINAL = {
    "attach", "batch_end", "checkpoint_end", "checkpoint_start", "error", "optimizer_step_end", "training_end",
    "training_start",
}  # fmt: skip
_PLAIN = (type(None), bool, int, float, str)


class Undo:
    """Takes measures, and the states of all who listen, back to the last good moment.

    What follows from that moment is heard again by the run that continues from it. The state of a listener is kept when
    it first hears something after the moment: who hears nothing costs nothing. A listener with much state says in a
    method `remember_state` how to get back to what it is now; it returns a function that does so.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        parts = [trainer.loss, trainer.decoder, *trainer.metrics, *trainer.model.modules()]
        self._others = [(part, names) for each in parts for part in _with_state(each) if (names := _state_fields(part))]
        self._parts: dict[int, list[Any]] = {}  # of each listener, those with state
        self._kept: dict[int, list[Callable[[], None]]] = {}
        self._is_active = False

    def watch(self, hooks: Hooks) -> None:
        """Have hooks ask for their owner's state to be kept before they are called."""
        for event, listening in hooks.items():
            for hook in listening if event not in _FINAL else ():
                hook.before = self._keep  # type: ignore[attr-defined]

    def begin(self, settings: bool = False) -> None:
        """Take the present moment as good; with `settings`, those of the optimizer and its schedule too."""
        trainer = self._trainer
        self._kept.clear()
        self._is_active = True
        self._epoch_read = trainer.epoch_read
        self._measures = trainer.performance_measures.remember_state()
        self._states = [_remembered_fields(part, names) for part, names in self._others]
        self._groups = [_settings(group) for group in trainer.optimizer.param_groups]
        has_state = settings and trainer.scheduler is not None
        self._schedule = copy.deepcopy(trainer.scheduler.state_dict()) if has_state else None

    def end(self) -> None:
        """There is no way back from here: what was heard is done."""
        self._kept.clear()
        self._is_active = False

    def restore(self) -> bool:
        """Go back to the good moment; not to before the end of the data, which a run does not read twice."""
        trainer = self._trainer
        if not self._is_active or trainer.epoch_read != self._epoch_read:
            return False
        for take_back in (*self._states, *(each for kept in self._kept.values() for each in kept), self._measures):
            take_back()
        for group, settings in zip(trainer.optimizer.param_groups, self._groups, strict=True):
            group.update(settings)
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


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def _state_fields(part: Any) -> list[str]:
    fields = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    return [field.name for field in fields if is_state(field)]


def _own_fields(trainer: Any) -> list[str]:
    """The state that a trainer of a user's own has beside that of ours, which the loop looks after."""
    ours = next(cls for cls in type(trainer).__mro__ if cls.__module__.startswith(__package__) and _state_fields(cls))
    return [name for name in _state_fields(trainer) if name not in _state_fields(ours)]


def _with_state(owner: Any) -> Iterator[Any]:
    """An object and what it was made from, as far as either may have state; a model's parts are listed on their own."""
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

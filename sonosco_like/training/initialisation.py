"""Fine-tuning: a model begins with the weights of another run, matched by name."""

from __future__ import annotations

import fnmatch
import logging
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from sonosco_like.errors import ConfigError, StorageError, UsageError, did_you_mean
from sonosco_like.inference.checkpoints import find_checkpoint
from sonosco_like.inference.saved import SavedTrainer
from sonosco_like.inference.weights import averaged_weights
from sonosco_like.serialization import serializable
from sonosco_like.training.checkpoints import state_dict_of

logger = logging.getLogger(__name__)

_MOST_LISTED = 8


@serializable
class InitialWeights:
    """Where a model's first weights come from: a run (its best checkpoint, else its last) or one checkpoint.

    Weights whose names match a pattern of `leave_out` (`decoder.*`) stay as the seed drew them. `rename` maps
    beginnings of names there to beginnings of names here: `{listener.: encoder.}`.
    """

    run: Path
    leave_out: list[str] = field(default_factory=list)
    rename: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Matching:
    """Which weights of a model were found in a checkpoint, and which were not."""

    source: Path
    matched: tuple[str, ...]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    reshaped: tuple[str, ...]

    def lines(self) -> list[str]:
        """The report for people: one line for each kind that there is."""
        kinds = {
            "left out as asked": self.left_out,
            "not in the checkpoint, so drawn anew": self.missing,
            "only in the checkpoint, so not used": self.unexpected,
            "of another shape": self.reshaped,
        }
        head = f"{len(self.matched)} of {len(self.matched) + self._without} weights taken from {self.source}"
        return [head, *(f"{len(names)} {kind}: {_some(names)}" for kind, names in kinds.items() if names)]

    @property
    def _without(self) -> int:
        return len(self.left_out) + len(self.missing) + len(self.reshaped)


def initialise(model: nn.Module, init_from: InitialWeights | Path) -> Matching:
    """Give a model the weights of a checkpoint, and say in the log which ones.

    Raises UsageError, with the model as it was, if nothing matches, if shapes differ that were not left out, or if a
    pattern matches nothing.
    """
    wanted = init_from if isinstance(init_from, InitialWeights) else InitialWeights(run=init_from)
    source = _source(wanted.run)
    found = _renamed(weights_of(source), wanted.rename)
    matching = _match(model.state_dict(), found, wanted.leave_out, source)
    _refuse_misfits(matching, wanted)
    own = model.state_dict()
    with torch.no_grad():
        for name in matching.matched:
            own[name].copy_(found[name])
    for number, line in enumerate(matching.lines()):
        logger.log(logging.WARNING if number and "as asked" not in line else logging.INFO, "init_from: %s", line)
    return matching


def weights_of(checkpoint: Path) -> dict[str, Tensor]:
    """The weights a checkpoint's model is used with, by name: the averaged ones where it is used with an average.

    No class of the run has to be known for this.
    """
    try:
        averaged = averaged_weights(SavedTrainer(checkpoint))
        content = state_dict_of(checkpoint, "model")
    except (StorageError, ConfigError) as error:
        raise UsageError(f"init_from: {checkpoint} cannot be read: {error}") from error
    if not content:
        raise UsageError(f"init_from: {checkpoint} holds no `model` with weights; it must be saved by a trainer.")
    return {name: value for name, value in {**content, **averaged}.items() if isinstance(value, Tensor)}


def _source(run: Path) -> Path:
    try:
        return find_checkpoint(run)
    except UsageError as error:
        raise UsageError(f"init_from: {error} Weights in formats other than ours are not read.") from error


def _renamed(weights: dict[str, Tensor], rename: dict[str, str]) -> dict[str, Tensor]:
    for beginning in rename:
        if not any(name.startswith(beginning) for name in weights):
            raise UsageError(f"init_from: no weight begins with {beginning!r}, so `rename` cannot change it.")
    renamed: dict[str, Tensor] = {}
    for name, value in weights.items():
        beginning = next((each for each in rename if name.startswith(each)), "")
        new = rename.get(beginning, "") + name.removeprefix(beginning)
        if new in renamed:
            raise UsageError(f"init_from: `rename` gives two weights the name {new!r}.")
        renamed[new] = value
    return renamed


def _match(own: dict[str, Tensor], found: dict[str, Tensor], leave_out: list[str], source: Path) -> Matching:
    for pattern in leave_out:
        if not fnmatch.filter([*own, *found], pattern):
            hint = did_you_mean(pattern, {f"{part}.*" for name in (*own, *found) for part in _parents(name)})
            raise UsageError(f"init_from: `leave_out` has {pattern!r}, which matches no weight{hint or '.'}")
    left_out = {name for name in (*own, *found) if any(fnmatch.fnmatchcase(name, each) for each in leave_out)}
    both = [name for name in own if name in found and name not in left_out]
    same = [name for name in both if own[name].shape == found[name].shape]
    shapes = {name: f"{name} ({_shape(found[name])} there, {_shape(own[name])} here)" for name in both}
    return Matching(
        source,
        matched=tuple(same),
        left_out=tuple(name for name in own if name in left_out),
        missing=tuple(name for name in own if name not in found and name not in left_out),
        unexpected=tuple(name for name in found if name not in own and name not in left_out),
        reshaped=tuple(shapes[name] for name in both if name not in same),
    )


def _refuse_misfits(matching: Matching, wanted: InitialWeights) -> None:
    if matching.reshaped:
        names = [name.partition(" ")[0] for name in matching.reshaped]
        patterns = [*wanted.leave_out, *dict.fromkeys(_pattern(name, matching.matched) for name in names)]
        raise UsageError(
            f"init_from: {len(matching.reshaped)} weights of {matching.source} have another shape here: "
            f"{_some(matching.reshaped)}. Build the model as it was there, or leave them out: "
            f"init_from: {{run: {wanted.run}, leave_out: {patterns}}}"
        )
    if not matching.matched:
        raise UsageError(
            f"init_from: no weight of {matching.source} has the name of one here. There: {_some(matching.unexpected)}. "
            f"Here: {_some(matching.missing)}. Is it the same kind of model? `rename` maps beginnings of names."
        )


def _pattern(name: str, keep: tuple[str, ...]) -> str:
    """The shortest pattern for a weight and its like that touches none of those to keep."""
    free = (part for part in _parents(name) if not any(other.startswith(f"{part}.") for other in keep))
    return next((f"{part}.*" for part in free), name)


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a number"


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return (", ".join(names[:_MOST_LISTED]) or "none") + more

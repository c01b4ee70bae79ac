"""Fine-tuning: a model starts with the weights of another run, matched by name."""

from __future__ import annotations

import fnmatch
import logging
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from sonosco_like.errors import ConfigError, StorageError, UsageError, did_you_mean, list_some
from sonosco_like.inference.recogniser import SavedParts
from sonosco_like.runs.checkpoints import find_checkpoint
from sonosco_like.serialization import Saved, serializable

logger = logging.getLogger(__name__)

_MOST_LISTED = 8


@serializable
class InitialWeights:
    """The source of a model's initial weights: a run (its best checkpoint, else its last), or one checkpoint.

    Weights whose names match a pattern of `leave_out`, such as `decoder.*`, stay as the seed drew them. `rename` maps
    prefixes of names in the checkpoint to prefixes of names in the model: `{listener.: encoder.}`.
    """

    run: Path
    leave_out: list[str] = field(default_factory=list)
    rename: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Matching:
    """The names of the weights that a model and a checkpoint share, and of those that they do not."""

    source: Path
    matched: tuple[str, ...]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    reshaped: tuple[str, ...]

    def lines(self) -> list[str]:
        """The report for people: the matched weights, then one line for each other kind that has any."""
        kinds = {
            "left out as asked": self.left_out,
            "not in the checkpoint, so drawn from the seed": self.missing,
            "only in the checkpoint, so not used": self.unexpected,
            "of another shape": self.reshaped,
        }
        head = f"{len(self.matched)} of {len(self.matched) + self._unmatched} weights taken from {self.source}"
        return [
            head,
            *(f"{len(names)} {kind}: {list_some(names, _MOST_LISTED)}" for kind, names in kinds.items() if names),
        ]

    @property
    def _unmatched(self) -> int:
        return len(self.left_out) + len(self.missing) + len(self.reshaped)


def initialise(model: nn.Module, init_from: InitialWeights | Path) -> Matching:
    """Give a model the weights of a checkpoint, and log which ones.

    Raises UsageError, and leaves the model unchanged, if no weight matches, if a weight that is not left out has
    another shape, or if a pattern matches nothing.
    """
    wanted = init_from if isinstance(init_from, InitialWeights) else InitialWeights(run=init_from)
    source = _source(wanted.run)
    found = _rename(weights_of(source), wanted.rename)
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
    """The weights of a checkpoint by name, averaged if the recogniser uses averaged weights.

    This reads no class of the run, so none has to be imported.
    """
    try:
        saved = Saved(checkpoint)
        content = saved.tensors("model")
        averaged = SavedParts(saved).averaged_weights()
    except (StorageError, ConfigError) as error:
        raise UsageError(f"init_from: {checkpoint} cannot be read: {error}") from error
    if not content:
        raise UsageError(f"init_from: {checkpoint} holds no `model` with weights; it must be saved by a trainer.")
    return {**content, **averaged}


def _source(run: Path) -> Path:
    try:
        return find_checkpoint(run)
    except UsageError as error:
        raise UsageError(f"init_from: {error} Only weights that sonosco_like saved can be read.") from error


def _rename(weights: dict[str, Tensor], rename: dict[str, str]) -> dict[str, Tensor]:
    for prefix in rename:
        if not any(name.startswith(prefix) for name in weights):
            raise UsageError(f"init_from: `rename` has the prefix {prefix!r}, with which no weight begins.")
    renamed: dict[str, Tensor] = {}
    for name, value in weights.items():
        prefix = next((each for each in rename if name.startswith(each)), "")
        new = rename.get(prefix, "") + name.removeprefix(prefix)
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
    shapes = {
        name: f"{name} ({_shape(found[name])} in the checkpoint, {_shape(own[name])} in the model)" for name in both
    }
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
            f"{list_some(matching.reshaped, _MOST_LISTED)}. Build the model as it is in the checkpoint, or leave them "
            f"out: init_from: {{run: {wanted.run}, leave_out: {patterns}}}"
        )
    if not matching.matched:
        raise UsageError(
            f"init_from: no weight of {matching.source} has the name of a weight of this model. "
            f"The checkpoint has {list_some(matching.unexpected, _MOST_LISTED)}. "
            f"The model has {list_some(matching.missing, _MOST_LISTED)}. "
            "Is it the same kind of model? `rename` maps prefixes of names."
        )


def _pattern(name: str, keep: tuple[str, ...]) -> str:
    """The shortest pattern that matches a weight and none of those in `keep`."""
    free = (part for part in _parents(name) if not any(other.startswith(f"{part}.") for other in keep))
    return next((f"{part}.*" for part in free), name)


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "scalar"

"""Fine-tuning: a model starts with the weights of another run, or of a folder that others published."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.errors import ConfigError, DataError, MissingPackageError, StorageError, UsageError, list_some
from sonosco_like.inference.recogniser import SavedParts
from sonosco_like.models.adapters import frozen_by_adapters, is_of_adapter, merged_weights
from sonosco_like.models.pretrained import is_foreign
from sonosco_like.runs.checkpoints import find_checkpoint
from sonosco_like.serialization import Saved, serializable
from sonosco_like.training.matching import Matching, Weights, match, pattern_of, refuse_misfits
from sonosco_like.training.pretrained import pretrained_weights

logger = logging.getLogger(__name__)


@serializable
class InitialWeights:
    """The source of a model's initial weights: a run (its best checkpoint, else its last), a checkpoint, or a folder
    that others published (`config.json` and `model.safetensors`).

    Of all its weights, `only` those are taken whose names match a pattern such as `encoder.*`; those that match a
    pattern of `leave_out` stay as the seed drew them. `rename` maps prefixes of names in the checkpoint to prefixes of
    names in the model: `{listener.: encoder.}`.

    With `validate` the model is validated before the first step, so that the log can say whether the training makes it
    better or worse. This is left out for an output layer that was drawn from the seed.
    """

    run: Path
    leave_out: list[str] = field(default_factory=list)
    rename: dict[str, str] = field(default_factory=dict)
    only: list[str] = field(default_factory=list)
    validate: bool = True


def initialise(
    model: nn.Module, init_from: InitialWeights | Path, tokenizer: Any = None, features: Any = None
) -> Matching:
    """Give a model the weights of a source, and log which ones.

    `tokenizer` and `features` are those of the new data. If the tokenizer has other symbols than that of the source, an
    output layer and an embedding of labels keep the rows of the symbols that both have. If foreign weights were trained
    on other features, the log says so. Raises UsageError, and leaves the model unchanged, if no weight
    matches, if a weight that is not left out has another shape, or if a pattern matches nothing.
    """
    wanted = init_from if isinstance(init_from, InitialWeights) else InitialWeights(run=init_from)
    symbols = getattr(tokenizer, "symbols", None)
    if is_foreign(wanted.run):
        source = wanted.run
        given = pretrained_weights(source, model, symbols, features)
        found, remarks = Weights(_rename(given.tensors, wanted.rename), given.symbols), given.remarks
    else:
        source, remarks = _source(wanted.run), ()
        found = Weights(_rename(weights_of(source), wanted.rename), symbols and _symbols_of(source))
    tensors = {name: tensor for name, tensor in model.state_dict().items() if not is_of_adapter(name)}
    own = Weights(tensors, symbols, getattr(model, "symbol_weights", ()))
    matching = match(own, found, source, wanted.only, wanted.leave_out)
    matching = replace(matching, remarks=(*remarks, *_frozen_remarks(model, matching)))
    refuse_misfits(matching, wanted.run, wanted.leave_out)
    _copy(own, found, matching)
    for number, line in enumerate(matching.lines()):
        logger.log(logging.WARNING if number and "as asked" not in line else logging.INFO, "init_from: %s", line)
    return matching


def is_worth_validating(model: nn.Module, init_from: InitialWeights | Path, matching: Matching) -> bool:
    """Whether to validate a model before its first step: as asked, unless its whole output layer is new."""
    outputs = set(getattr(model, "symbol_weights", ()))
    taken = {*matching.matched, *matching.by_symbol.names}
    return getattr(init_from, "validate", True) and (not outputs or bool(outputs & taken))


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
    return merged_weights({**content, **averaged})


def _symbols_of(checkpoint: Path) -> Sequence[str] | None:
    """The symbols of the tokenizer in a checkpoint; None if it has none, or one that cannot be read here."""
    try:
        tokenizer = SavedParts(Saved(checkpoint)).tokenizer()
        return None if tokenizer is None else tokenizer.symbols
    except (ConfigError, DataError, MissingPackageError) as error:
        logger.warning(
            "init_from: the tokenizer of %s cannot be read, so whether its symbols are those of this data is not "
            "known: %s", checkpoint, error,
        )  # fmt: skip
        return None


def _frozen_remarks(model: nn.Module, matching: Matching) -> list[str]:
    """A sentence if adapters freeze weights that were drawn from the seed: these would never learn."""
    frozen = frozen_by_adapters(model)
    rows = matching.by_symbol
    drawn = [*matching.missing, *matching.left_out, *(rows.names if rows.added else ())]
    stuck = [name for name in drawn if name in frozen]
    if not stuck:
        return []
    patterns = list(dict.fromkeys(pattern_of(name, matching.matched) for name in stuck))
    return [
        f"`adapters` freeze {list_some(stuck, 3)}, drawn from the seed: they would never learn. Let them: "
        f"`also_train: {patterns}`"
    ]


def _copy(own: Weights, found: Weights, matching: Matching) -> None:
    rows = matching.by_symbol
    with torch.no_grad():
        for name in matching.matched:
            own.tensors[name].copy_(found.tensors[name])
        for name in rows.names:
            target = own.tensors[name]
            target[list(rows.new)] = found.tensors[name][list(rows.old)].to(target)


def _source(run: Path) -> Path:
    try:
        return find_checkpoint(run)
    except UsageError as error:
        raise UsageError(
            f"init_from: {error} Weights that others published are a folder with config.json and model.safetensors."
        ) from error


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

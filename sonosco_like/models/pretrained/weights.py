"""What a folder of foreign weights holds, by the names that our encoders have."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from sonosco_like.errors import UsageError, did_you_mean, list_some
from sonosco_like.models.pretrained import wav2vec2, whisper
from sonosco_like.models.pretrained.folder import CONFIG, WeightFolder
from sonosco_like.models.recogniser import Encoder

_FAMILIES: dict[str, tuple[ModuleType, type[Encoder]]] = {
    **dict.fromkeys(wav2vec2.FAMILIES, (wav2vec2, wav2vec2.Wav2Vec2Encoder)),
    **dict.fromkeys(whisper.FAMILIES, (whisper, whisper.WhisperEncoder)),
}
_MOST_SIZE, _MOST_LAYERS, _MOST_LISTED = 1 << 17, 1000, 8
_INPUTS = {"Waveform": 1}
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ForeignWeights:
    """An encoder that others trained.

    ```
    folder    where it lies
    family    wav2vec2, hubert or whisper
    config    what its config.json says
    encoder   our encoder of its sizes, without layers until it is built
    tensors   its weights as float32, by the names that our encoder has for them
    unused    the names, in the files, of the tensors that our encoder has no place for
    features  the fields of the features that it was trained on, with their `class`
    licence   the licence that its README or config names; empty if neither does
    ```
    """

    folder: Path
    family: str
    config: dict[str, Any]
    encoder: Encoder
    tensors: dict[str, Tensor]
    unused: tuple[str, ...]
    features: dict[str, Any]
    licence: str

    @property
    def parameters(self) -> int:
        """How many numbers the tensors hold."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    @property
    def encoder_fields(self) -> dict[str, Any]:
        """The fields of the encoder that differ from their defaults, with its `class`: what a config has to say."""
        plain = type(self.encoder)()
        own = {each.name: getattr(self.encoder, each.name) for each in fields(type(self.encoder))}  # type: ignore[arg-type]
        changed = {name: value for name, value in own.items() if value != getattr(plain, name)}
        return {"class": type(self.encoder).__name__, **changed}


def read_weights(folder: Path) -> ForeignWeights:
    """The encoder in a folder of foreign weights, compared name by name and size by size with our own.

    Raises UsageError if the folder cannot be read safely, is of a family that none of our encoders fits, or lacks
    tensors that its own config promises.
    """
    opened = WeightFolder(folder)
    family = family_of(opened)
    module, kind = _FAMILIES[family]
    try:
        sizes = module.fields_of(opened.config)
        _check_sizes(sizes, kind)
        encoder = kind(**sizes)
    except (UsageError, TypeError) as error:
        raise UsageError(f"{folder / CONFIG}: {error}") from error
    features = module.features_of(opened.config, opened.preprocessor)
    own = {name: module.own_name(name) for name in opened.names}
    expected = _expected(kind(**sizes), features)
    _check_names(folder, own, expected)
    used = {name: mine for name, mine in own.items() if mine in expected}
    tensors = {mine: opened.read(name) for name, mine in used.items()}
    _check_shapes(folder, tensors, expected)
    unused = tuple(name for name in own if name not in used)
    return ForeignWeights(folder, family, opened.config, encoder, tensors, unused, features, opened.licence)


def is_foreign(folder: Path) -> bool:
    """Whether a folder has the files of foreign weights, and not those of a run of ours."""
    return (folder / CONFIG).is_file()


def family_of(opened: WeightFolder) -> str:
    """The family that a config names; a UsageError if none of our encoders fits it."""
    family = opened.config.get("model_type")
    if isinstance(family, str) and family in _FAMILIES:
        return family
    hint = did_you_mean(str(family), _FAMILIES)
    raise UsageError(
        f"{opened.path / CONFIG} has the model_type {str(family)[:100]!r}{hint or '.'} There are encoders for "
        f"{', '.join(_FAMILIES)} (XLS-R and MMS are wav2vec2)."
    )


def _check_sizes(sizes: Mapping[str, Any], kind: type[Encoder]) -> None:
    """Refuse values of a type that the field has not, and sizes that no model has."""
    plain = kind()
    for name, value in sizes.items():
        expected = getattr(plain, name)
        each = value if isinstance(expected, list) and isinstance(value, list) and len(value) <= 64 else [value]
        wanted = type(expected[0] if isinstance(expected, list) else expected)
        most = _MOST_LAYERS if name == "layers" else _MOST_SIZE
        fits = all(type(one) is wanted and (wanted is not int or 1 <= one <= most) for one in each)
        if not fits or isinstance(value, list) != isinstance(expected, list):
            raise UsageError(f"A size is {str(value)[:100]!r}, but `{name}` must be like {expected!r}.")


def _expected(encoder: Encoder, features: Mapping[str, Any]) -> dict[str, torch.Size]:
    """The names and shapes of the weights of an encoder, which is built without memory for them."""
    width = _INPUTS.get(str(features["class"]), features.get("mels"))
    if type(width) is not int or not 1 <= width <= _MOST_SIZE:
        raise UsageError(f"The number of mel bands must be a whole number, got {str(width)[:100]!r}.")
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        encoder.build(width)
    return {name: tensor.shape for name, tensor in encoder.state_dict().items()}


def _check_names(folder: Path, own: Mapping[str, str | None], expected: Mapping[str, torch.Size]) -> None:
    mine = [name for name in own.values() if name is not None]
    if doubled := sorted({name for name in mine if mine.count(name) > 1}):
        raise UsageError(f"{folder} has {list_some(doubled, _MOST_LISTED)} more than once, under old and new names.")
    # The vector for masked frames is missing where a model was pretrained without masks.
    missing = [name for name in expected if name not in mine and name != "mask_embedding"]
    if missing:
        raise UsageError(
            f"{folder} lacks {len(missing)} of the {len(expected)} tensors that its config promises: "
            f"{list_some(missing, _MOST_LISTED)}. It has {list_some(list(own), _MOST_LISTED)}."
        )


def _check_shapes(folder: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, torch.Size]) -> None:
    wrong = [
        f"{name} ({_shape(tensor.shape)} in the file, {_shape(expected[name])} by the config)"
        for name, tensor in tensors.items()
        if tensor.shape != expected[name]
    ]
    if wrong:
        raise UsageError(f"{folder}: {len(wrong)} tensors have another shape: {list_some(wrong, _MOST_LISTED)}.")


def _shape(shape: torch.Size) -> str:
    return " x ".join(map(str, shape)) or "scalar"

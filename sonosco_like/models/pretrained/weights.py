"""What a folder of foreign weights holds, by the names that our encoders have."""

from __future__ import annotations

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


@dataclass(frozen=True)
class OutputLayer:
    """The output layer of foreign weights: the names of its tensors in the files by `weight` and `bias`, its symbols.

    The symbols are in the words of our tokenizers; None if the folder does not say them.
    """

    names: dict[str, str]
    symbols: list[str] | None


@dataclass(frozen=True)
class ForeignWeights:
    """A pretrained encoder of another project; a tensor is read when it is used.

    ```
    folder    the folder with its files
    family    wav2vec2, hubert or whisper
    encoder   our encoder of its sizes, without layers until it is built
    features  what it was trained on: fields of the features that a config names
    names     the name in the files for each name in our encoder
    unused    the names, in the files, of the tensors that our encoder has no place for
    output    its output layer over characters; None if it has none
    ```
    """

    folder: WeightFolder
    family: str
    encoder: Encoder
    features: dict[str, Any]
    names: dict[str, str]
    unused: tuple[str, ...]
    output: OutputLayer | None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The weights of the encoder as float32, by the names that our encoder has for them."""
        return {mine: self.folder.read(name) for mine, name in self.names.items()}

    @property
    def encoder_fields(self) -> dict[str, Any]:
        """The fields of the encoder that differ from their defaults, with its `class`, as a config has to name them."""
        plain = type(self.encoder)()
        own = {each.name: getattr(self.encoder, each.name) for each in fields(type(self.encoder))}  # type: ignore[arg-type]
        changed = {name: value for name, value in own.items() if value != getattr(plain, name)}
        return {"class": type(self.encoder).__name__, **changed}

    def differences(self, encoder: Encoder) -> list[str]:
        """The sizes of an encoder of the same class that differ from those of the config.json, a line for each."""
        sizes = _FAMILIES[self.family][0].SIZES
        return [
            f"`{name}` is {getattr(encoder, name)}, and `{foreign}` is {getattr(self.encoder, name)}"
            for name, foreign in sizes.items()
            if getattr(encoder, name) != getattr(self.encoder, name)
        ]


def read_weights(folder: Path) -> ForeignWeights:
    """The encoder in a folder of foreign weights, compared name by name and size by size with our own.

    Raises UsageError if the folder cannot be read safely, is of a family that none of our encoders fits, or lacks
    tensors that its own config needs.
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
    if type(features["sample_rate"]) is not int:
        raise UsageError(
            f"{folder}: the sampling_rate must be a whole number, got {str(features['sample_rate'])[:100]!r}."
        )
    own = {name: module.own_name(name) for name in opened.names}
    expected = _expected(kind(**sizes), features)
    _check_names(folder, own, expected)
    used = {mine: name for name, mine in own.items() if mine in expected}
    _check_shapes(opened, used, expected)
    output = _output_layer(opened, module)
    taken = {*used.values(), *(output.names.values() if output else ())}
    unused = tuple(name for name in own if name not in taken)
    return ForeignWeights(opened, family, encoder, features, used, unused, output)


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


def _output_layer(opened: WeightFolder, module: ModuleType) -> OutputLayer | None:
    names = {part: name for part, name in module.OUTPUT_LAYER.items() if name in opened.names}
    if names.keys() != module.OUTPUT_LAYER.keys() or not names:
        return None
    rows = opened.shape(names["weight"])[0]
    return OutputLayer(names, module.symbols_of(opened.config, opened.vocabulary, opened.word_delimiter, rows))


def _check_sizes(sizes: Mapping[str, Any], kind: type[Encoder]) -> None:
    """Refuse values of a wrong type, and sizes that no model has."""
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
    width = features.get("mels", 1)
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
            f"{folder} lacks {len(missing)} of the {len(expected)} tensors that its config needs: "
            f"{list_some(missing, _MOST_LISTED)}. It has {list_some(list(own), _MOST_LISTED)}. Fetch the folder again; "
            f"its {CONFIG} may be that of another model."
        )


def _check_shapes(opened: WeightFolder, names: Mapping[str, str], expected: Mapping[str, torch.Size]) -> None:
    wrong = [
        f"{mine} ({_shape(opened.shape(name))} in the file, {_shape(expected[mine])} by the config)"
        for mine, name in names.items()
        if opened.shape(name) != tuple(expected[mine])
    ]
    if wrong:
        raise UsageError(
            f"{opened.path}: {len(wrong)} tensors have another shape: {list_some(wrong, _MOST_LISTED)}. Fetch the "
            f"folder again; its {CONFIG} may be that of another model."
        )


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "scalar"

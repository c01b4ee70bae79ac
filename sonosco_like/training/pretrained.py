"""Initial weights from a folder that others published: does the encoder fit, which output rows, which features.

The weights get the names that they have in a model of ours: `encoder.*`, and `ctc_output.*` for an output layer over
characters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.data.features import FeatureExtractor
from sonosco_like.data.pretrained_features import Waveform, WhisperLogMel
from sonosco_like.errors import UsageError
from sonosco_like.models.pretrained import ForeignWeights, OutputLayer, read_weights

_FEATURES: dict[str, type[FeatureExtractor]] = {
    "wav2vec2": Waveform,
    "hubert": Waveform,
    "whisper": WhisperLogMel,
}
_OUTPUT = "ctc_output"


@dataclass(frozen=True)
class PretrainedWeights:
    """The weights of a folder by the names of the model, the symbols of the output rows, and remarks for people."""

    tensors: dict[str, Tensor]
    symbols: Sequence[str] | None
    remarks: tuple[str, ...]


def pretrained_weights(
    folder: Path, model: nn.Module, symbols: Sequence[str] | None, features: Any = None
) -> PretrainedWeights:
    """The weights of a folder for a model whose data has these symbols and features.

    Raises UsageError, with all fields that differ, if the encoder of the model is not that of the folder. The output
    layer is among the weights only if the symbols of both sides are known.
    """
    try:
        weights = read_weights(folder)
    except UsageError as error:
        raise UsageError(f"init_from: {error}") from error
    check_encoder(weights, getattr(model, "encoder", None), getattr(model, "features", 0))
    tensors = {f"encoder.{name}": tensor for name, tensor in weights.tensors.items()}
    # Tensors without numbers: they can be listed as unused, and are never taken.
    tensors |= {name: torch.empty(weights.folder.shape(name), device="meta") for name in weights.unused}
    remarks = [line for line in [features_remark(weights, features)] if line]
    theirs = None
    if weights.output is not None:
        theirs, remark = symbols_like(weights.output, symbols)
        named = f"{_OUTPUT}." if theirs is not None and getattr(model, _OUTPUT, None) is not None else "lm_head."
        tensors |= {named + part: weights.folder.read(name) for part, name in weights.output.names.items()}
        remarks += [remark] if remark else []
    return PretrainedWeights(tensors, theirs, tuple(remarks))


def check_encoder(weights: ForeignWeights, encoder: Any, features: int) -> None:
    """Refuse an encoder that is not of the class and of all the sizes of foreign weights."""
    folder, name = weights.folder.path, type(weights.encoder).__name__
    remedy = f"Write it as `sonosco weights {folder}` prints it:\n  encoder: {encoder_line(weights)}"
    if type(encoder) is not type(weights.encoder):
        has = "no `encoder`" if encoder is None else f"the encoder {type(encoder).__name__}"
        raise UsageError(f"init_from: {folder} holds the weights of a {name}, and the model has {has}. {remedy}")
    found = weights.differences(encoder)
    mels = weights.features.get("mels", features)
    if features and mels != features:
        found.append(f"the features have {features} values per frame, and `num_mel_bins` is {mels}")
    if found:
        listed = "\n".join(f"  {line}" for line in found)
        fields = "a field" if len(found) == 1 else f"{len(found)} fields"
        raise UsageError(f"init_from: {fields} of the {name} differ from {folder / 'config.json'}:\n{listed}\n{remedy}")


def symbols_like(output: OutputLayer, wanted: Sequence[str] | None) -> tuple[list[str] | None, str]:
    """The symbols of a foreign output layer, in small letters if all wanted ones are small; and a remark about them."""
    if output.symbols is None:
        return None, "the output layer lm_head is not taken: there is no vocab.json that names its characters"
    if wanted is None:
        return None, "the output layer lm_head is not taken: the symbols of the data are not known"
    small = [symbol.lower() for symbol in output.symbols]
    gained = sum(symbol in wanted for symbol in small) - sum(symbol in wanted for symbol in output.symbols)
    if gained > 0 and len(set(small)) == len(small) and all(symbol == symbol.lower() for symbol in wanted):
        return small, f"{gained} capital letters of its vocab.json are taken for the small letters of the data"
    return output.symbols, ""


def features_remark(weights: ForeignWeights, features: Any) -> str:
    """A sentence if the features of the data are not those that the weights were trained on; else nothing."""
    kind = _FEATURES[weights.family]
    if features is None:
        return ""
    wanted = features_line(weights)
    if not isinstance(features, kind):
        return f"the features of the data are {type(features).__name__}, and the encoder was trained on {wanted}"
    differing = [
        f"`{name}` is {_text(getattr(features, name))}"
        for name, value in weights.features.items()
        if getattr(features, name) != value
    ]
    return f"the encoder was trained on {wanted}, and here {', '.join(differing)}" if differing else ""


def encoder_line(weights: ForeignWeights) -> str:
    """The encoder as a config says it, in one line of YAML."""
    return _mapping(weights.encoder_fields)


def features_line(weights: ForeignWeights) -> str:
    """The features as a config says them, in one line of YAML."""
    return _mapping(features_fields(weights))


def features_fields(weights: ForeignWeights) -> dict[str, Any]:
    """The fields of the features that differ from their defaults, with their `class`: what a config has to say."""
    kind = _FEATURES[weights.family]
    plain = kind()
    changed = {name: value for name, value in weights.features.items() if value != getattr(plain, name)}
    return {"class": kind.__name__, **changed}


def _mapping(fields: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {_text(value)}" for name, value in fields.items()) + "}"


def _text(value: Any) -> str:
    """A value in YAML, which is that of JSON for numbers, lists and booleans."""
    return value if isinstance(value, str) else json.dumps(value)

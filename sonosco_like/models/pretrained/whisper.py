"""The encoder of Whisper (Radford et al. 2022, arXiv 2212.04356), and the names of its tensors in files.

Shape suffixes as in `records`; here also A size of a head, C channels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.models.attention import split_heads
from sonosco_like.models.recogniser import Encoder
from sonosco_like.serialization import serializable
from sonosco_like.tensors import length_mask, reduced_lengths, zero_padding

FAMILIES = ("whisper",)
_REDUCTION = 2


class WhisperAttention(nn.Module):
    """Multi-head self-attention over real frames; its keys have no bias."""

    def __init__(self, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q_proj = nn.Linear(size, size)
        self.k_proj = nn.Linear(size, size, bias=False)
        self.v_proj = nn.Linear(size, size)
        self.out_proj = nn.Linear(size, size)

    def forward(self, frames_BSD: Tensor, mask_BS: Tensor) -> Tensor:
        """What each frame reads from the real frames of its utterance."""
        projections = (self.q_proj, self.k_proj, self.v_proj)
        query_BHSA, key_BHSA, value_BHSA = (split_heads(each(frames_BSD), self.heads) for each in projections)
        pairs_BHSS = mask_BS[:, None, None].expand(-1, 1, mask_BS.shape[1], -1)
        dropout = self.dropout if self.training else 0.0
        read_BHSA = nn.functional.scaled_dot_product_attention(query_BHSA, key_BHSA, value_BHSA, pairs_BHSS, dropout)
        return self.out_proj(read_BHSA.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class WhisperBlock(nn.Module):
    """x + attention, + feed forward; each part normalises its own input."""

    def __init__(self, size: int, heads: int, inner_size: int, dropouts: tuple[float, float, float]) -> None:
        super().__init__()
        self.dropout, attention_dropout, self.inner_dropout = dropouts
        self.self_attn = WhisperAttention(size, heads, attention_dropout)
        self.self_attn_layer_norm = nn.LayerNorm(size)
        self.fc1 = nn.Linear(size, inner_size)
        self.fc2 = nn.Linear(inner_size, size)
        self.final_layer_norm = nn.LayerNorm(size)

    def forward(self, frames_BSD: Tensor, mask_BS: Tensor) -> Tensor:
        """The frames after the block, with arbitrary values in the padding."""
        read_BSD = self.self_attn(self.self_attn_layer_norm(frames_BSD), mask_BS)
        frames_BSD = frames_BSD + nn.functional.dropout(read_BSD, self.dropout, self.training)
        inner_BSD = nn.functional.gelu(self.fc1(self.final_layer_norm(frames_BSD)))
        inner_BSD = self.fc2(nn.functional.dropout(inner_BSD, self.inner_dropout, self.training))
        return frames_BSD + nn.functional.dropout(inner_BSD, self.dropout, self.training)


@serializable
class WhisperEncoder(Encoder):
    """Two convolutions, which leave every second frame, then a transformer; one frame for every 20 ms.

    The fields are the sizes; those left out are of `whisper-tiny`. `sonosco weights FOLDER` prints the fields that a
    folder of pretrained weights needs. Only `init_from` names the folder, so a run needs it only at its first start.

    An utterance uses as many of the `positions` as it has frames, and its padding is masked. Whisper itself fills every
    utterance with silence to 30 s: the features `{class: WhisperLogMel, padded_seconds: 30}` do that, and the encoder
    then sees what it saw in its pretraining. Its work is then the same for 3 s as for 30 s. Choose that for an
    encoder that stays frozen; one that learns on gets used to cut positions.
    """

    size: int = 384
    layers: int = 4
    heads: int = 6
    inner_size: int = 1536
    positions: int = 1500
    dropout: float = 0.0
    attention_dropout: float = 0.0
    inner_dropout: float = 0.0

    def __post_init__(self) -> None:
        if min(self.size, self.layers, self.heads, self.inner_size, self.positions) < 1 or self.size % 2:
            raise UsageError("All sizes of a WhisperEncoder must be at least 1, and `size` must be even.")
        if self.size % self.heads:
            raise UsageError(f"`size` must be a multiple of `heads`, got {self.size} and {self.heads}.")
        if not all(0 <= share < 1 for share in (self.dropout, self.attention_dropout, self.inner_dropout)):
            raise UsageError("Shares of dropout must be at least 0 and less than 1.")

    @property
    def frame_reduction(self) -> int:
        return _REDUCTION

    @property
    def output_size(self) -> int:
        return self.size

    def build(self, features: int) -> None:
        dropouts = (self.dropout, self.attention_dropout, self.inner_dropout)
        self.conv1 = nn.Conv1d(features, self.size, 3, padding=1)
        self.conv2 = nn.Conv1d(self.size, self.size, 3, stride=_REDUCTION, padding=1)
        self.register_buffer("embed_positions", sinusoids(self.positions, self.size))
        self.blocks = nn.ModuleList(
            WhisperBlock(self.size, self.heads, self.inner_size, dropouts) for _ in range(self.layers)
        )
        self.layer_norm = nn.LayerNorm(self.size)

    def forward(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        if features_BTF.shape[1] > self.positions * _REDUCTION:
            raise UsageError(
                f"A WhisperEncoder with {self.positions} positions reads at most {self.positions * _REDUCTION} frames "
                f"of features (30 s in the published ones), got {features_BTF.shape[1]}. Set `max_duration` in the "
                "datasets, and `on_bad: skip` to leave longer utterances out."
            )
        maps_BCT = zero_padding(features_BTF, feature_lengths_B).transpose(1, 2)
        maps_BCT = nn.functional.gelu(self.conv1(maps_BCT))
        padding_BT = ~length_mask(feature_lengths_B, maps_BCT.shape[2])
        maps_BCT = nn.functional.gelu(self.conv2(maps_BCT.masked_fill(padding_BT[:, None], 0.0)))
        frames_BSD = maps_BCT.transpose(1, 2)
        lengths_B = reduced_lengths(feature_lengths_B, _REDUCTION)
        mask_BS = length_mask(lengths_B, frames_BSD.shape[1])
        frames_BSD = frames_BSD + self.get_buffer("embed_positions")[: frames_BSD.shape[1]]
        frames_BSD = nn.functional.dropout(frames_BSD, self.dropout, self.training)
        for block in self.blocks:
            frames_BSD = block(frames_BSD, mask_BS)
        return zero_padding(self.layer_norm(frames_BSD), lengths_B), lengths_B


def sinusoids(positions: int, size: int) -> Tensor:
    """Sinusoids_SD: the sines of all frequencies, then the cosines."""
    step = math.log(10_000.0) / max(size // 2 - 1, 1)
    angle_SD = torch.arange(positions)[:, None] * torch.exp(-step * torch.arange(size // 2))
    return torch.cat([angle_SD.sin(), angle_SD.cos()], dim=1)


OUTPUT_LAYER: dict[str, str] = {}  # that of its decoder is over pieces of text
SIZES = {
    "size": "d_model", "layers": "encoder_layers", "heads": "encoder_attention_heads",
    "inner_size": "encoder_ffn_dim", "positions": "max_source_positions",
}  # fmt: skip
_ONLY: dict[str, tuple[Any, ...]] = {"activation_function": ("gelu", None), "scale_embedding": (False, None)}


def own_name(name: str) -> str | None:
    """The name that a foreign tensor has in a `WhisperEncoder`; None if it has no place there."""
    found = re.fullmatch(r"(?:model\.)?encoder\.(.+)", name)
    if found is None:
        return None
    name = found[1].replace("embed_positions.weight", "embed_positions")
    return re.sub(r"^layers\.", "blocks.", name)


def fields_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the `WhisperEncoder` for a config.json; raises UsageError if it cannot represent it."""
    for key, allowed in _ONLY.items():
        if config.get(key) not in allowed:
            raise UsageError(f"The config has {key}: {config[key]!r}, and WhisperEncoder can only do {allowed[0]!r}.")
    return {own: config[foreign] for own, foreign in SIZES.items() if foreign in config}


def features_of(config: Mapping[str, Any], preprocessor: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the features that it was trained on, log-mel bands."""
    return {"sample_rate": preprocessor.get("sampling_rate", 16000), "mels": config.get("num_mel_bins", 80)}

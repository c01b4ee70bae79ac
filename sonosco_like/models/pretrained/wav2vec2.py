"""The encoder of Wav2Vec2, XLS-R, MMS and HuBERT (Baevski et al. 2020, arXiv 2006.11477); its tensors in files.

The layers are torchaudio's. Our own part is the handling of padded batches, so that an utterance has the same output
alone and in any batch; the reference implementation does not promise that.

Shape suffixes as in `records`; here also N samples, C channels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.models.recogniser import Encoder
from sonosco_like.records import BLANK, SPECIAL_SYMBOLS, UNKNOWN
from sonosco_like.serialization import serializable
from sonosco_like.tensors import length_mask, zero_padding
from sonosco_like.torchaudio_import import import_torchaudio

FAMILIES = ("wav2vec2", "hubert")
_LEAST_SPANS = 2  # masks over time per utterance, as in the reference


@serializable
class Wav2Vec2Encoder(Encoder):
    """Convolutions over raw samples (`Waveform` features), then a transformer; one frame for every 20 ms.

    The fields are the sizes; those left out are of `wav2vec2-base`. `sonosco weights FOLDER` prints the fields that a
    folder of pretrained weights needs. Only `init_from` names the folder, so a run needs it only at its first start.

    `norm: layer` normalises each frame after each convolution. `norm: group` normalises each channel once over the
    whole utterance: here over its real frames, so that an utterance alone agrees with the reference implementation.
    (A padded batch of the reference does not: it normalises over the padding too.) `norm_first` puts the norms before
    the layers of the transformer (`do_stable_layer_norm`).

    In training, `time_mask_share` of the frames is replaced by a learned vector, in spans of `time_mask_length`
    frames, and `feature_mask_share` of the channels by zeros: SpecAugment in the latent space, as in the paper.
    """

    size: int = 768
    layers: int = 12
    heads: int = 12
    inner_size: int = 3072
    channels: list[int] = field(default_factory=lambda: [512] * 7)
    kernels: list[int] = field(default_factory=lambda: [10, 3, 3, 3, 3, 2, 2])
    strides: list[int] = field(default_factory=lambda: [5, 2, 2, 2, 2, 2, 2])
    convolution_bias: bool = False
    norm: Literal["group", "layer"] = "group"
    norm_first: bool = False
    position_kernel: int = 128
    position_groups: int = 16
    dropout: float = 0.1
    attention_dropout: float = 0.1
    inner_dropout: float = 0.0
    layer_drop: float = 0.0
    time_mask_share: float = 0.05
    time_mask_length: int = 10
    feature_mask_share: float = 0.0
    feature_mask_length: int = 10

    def __post_init__(self) -> None:
        lists = (self.channels, self.kernels, self.strides)
        if len({len(each) for each in lists}) != 1 or not self.channels:
            raise UsageError(
                "`channels`, `kernels` and `strides` need one number for each convolution, "
                f"got {', '.join(str(len(each)) for each in lists)} numbers."
            )
        counts = (self.size, self.layers, self.heads, self.inner_size, self.position_kernel, self.position_groups)
        spans = (self.time_mask_length, self.feature_mask_length)
        if min(*counts, *spans, *self.channels, *self.kernels, *self.strides) < 1:
            raise UsageError("All sizes of a Wav2Vec2Encoder must be at least 1.")
        if self.size % self.heads or self.size % self.position_groups:
            raise UsageError(
                f"`size` must be a multiple of `heads` and of `position_groups`, got {self.size}, {self.heads} and "
                f"{self.position_groups}."
            )
        shares = (self.dropout, self.attention_dropout, self.inner_dropout, self.layer_drop)
        if not all(0 <= share < 1 for share in (*shares, self.time_mask_share, self.feature_mask_share)):
            raise UsageError("Shares of dropout and masks must be at least 0 and less than 1.")

    @property
    def frame_reduction(self) -> int:
        return math.prod(self.strides)

    @property
    def output_size(self) -> int:
        return self.size

    @property
    def least_samples(self) -> int:
        """Samples of one frame; a shorter utterance is completed with zeros."""
        needed = 1
        for kernel, stride in zip(reversed(self.kernels), reversed(self.strides), strict=True):
            needed = (needed - 1) * stride + kernel
        return needed

    def build(self, features: int) -> None:
        if features != 1:
            raise UsageError(
                f"A Wav2Vec2Encoder reads raw samples, one value per frame, got {features}. Give the datasets "
                "`features: {class: Waveform}` and no normalization (`normalization: null`)."
            )
        network = import_torchaudio().models.wav2vec2_model(
            extractor_mode=f"{self.norm}_norm",
            extractor_conv_layer_config=list(zip(self.channels, self.kernels, self.strides, strict=True)),
            extractor_conv_bias=self.convolution_bias,
            encoder_embed_dim=self.size,
            encoder_projection_dropout=self.dropout,
            encoder_pos_conv_kernel=self.position_kernel,
            encoder_pos_conv_groups=self.position_groups,
            encoder_num_layers=self.layers,
            encoder_num_heads=self.heads,
            encoder_attention_dropout=self.attention_dropout,
            encoder_ff_interm_features=self.inner_size,
            encoder_ff_interm_dropout=self.inner_dropout,
            encoder_dropout=self.dropout,
            encoder_layer_norm_first=self.norm_first,
            encoder_layer_drop=self.layer_drop,
            aux_num_out=None,
        )
        self.feature_extractor = network.feature_extractor
        self.feature_projection = network.encoder.feature_projection
        self.transformer = network.encoder.transformer
        masked = self.time_mask_share > 0
        self.mask_embedding = nn.Parameter(torch.empty(self.size).uniform_()) if masked else None

    def output_lengths(self, feature_lengths_B: Tensor) -> Tensor:
        lengths_B = feature_lengths_B.clamp(min=self.least_samples)
        for kernel, stride in zip(self.kernels, self.strides, strict=True):
            lengths_B = torch.div(lengths_B - kernel, stride, rounding_mode="floor") + 1
        return lengths_B

    def forward(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        samples_BN = zero_padding(features_BTF, feature_lengths_B)[:, :, 0]
        if samples_BN.shape[1] < self.least_samples:
            samples_BN = nn.functional.pad(samples_BN, (0, self.least_samples - samples_BN.shape[1]))
        frames_BSD = self.feature_projection(self._convolve(samples_BN, feature_lengths_B))
        lengths_B = self.output_lengths(feature_lengths_B)
        if self.training:
            frames_BSD = self._mask(frames_BSD, lengths_B)
        mask_BS = length_mask(lengths_B, frames_BSD.shape[1])
        pairs_BHSS = mask_BS[:, None, None].expand(-1, 1, mask_BS.shape[1], -1)
        encoded_BSD = self.transformer(zero_padding(frames_BSD, lengths_B), pairs_BHSS)
        return zero_padding(encoded_BSD, lengths_B), lengths_B

    def _convolve(self, samples_BN: Tensor, lengths_B: Tensor) -> Tensor:
        """The frames of the convolutions, with arbitrary values in the padding."""
        lengths_B = lengths_B.clamp(min=self.least_samples)
        maps_BCT = samples_BN[:, None]
        for layer, kernel, stride in zip(self.feature_extractor.conv_layers, self.kernels, self.strides, strict=True):
            maps_BCT = layer.conv(maps_BCT)
            lengths_B = torch.div(lengths_B - kernel, stride, rounding_mode="floor") + 1
            if isinstance(layer.layer_norm, nn.GroupNorm):
                maps_BCT = normalise_channels(layer.layer_norm, maps_BCT, lengths_B)
            elif layer.layer_norm is not None:
                maps_BCT = layer.layer_norm(maps_BCT)
            maps_BCT = nn.functional.gelu(maps_BCT)
        return maps_BCT.transpose(1, 2)

    def _mask(self, frames_BSD: Tensor, lengths_B: Tensor) -> Tensor:
        """The frames with spans of time and channels hidden."""
        batch, frames, size = frames_BSD.shape
        lengths = lengths_B.tolist()
        if self.mask_embedding is not None:
            hidden_BS = draw_spans(lengths, frames, self.time_mask_share, self.time_mask_length, _LEAST_SPANS)
            hidden_BS1 = hidden_BS.to(frames_BSD.device)[:, :, None]
            frames_BSD = torch.where(hidden_BS1, self.mask_embedding.to(frames_BSD.dtype), frames_BSD)
        if self.feature_mask_share > 0:
            hidden_BD = draw_spans([size] * batch, size, self.feature_mask_share, self.feature_mask_length)
            frames_BSD = frames_BSD.masked_fill(hidden_BD.to(frames_BSD.device)[:, None], 0.0)
        return frames_BSD


def normalise_channels(norm: nn.GroupNorm, maps_BCT: Tensor, lengths_B: Tensor) -> Tensor:
    """A group norm with one channel per group, over each utterance alone in a padded batch."""
    counts_B11 = lengths_B[:, None, None]
    padding_B1T = ~length_mask(lengths_B, maps_BCT.shape[2])[:, None]
    maps_BCT = maps_BCT.float()
    mean_BC1 = maps_BCT.masked_fill(padding_B1T, 0.0).sum(2, keepdim=True) / counts_B11
    centred_BCT = (maps_BCT - mean_BC1).masked_fill(padding_B1T, 0.0)
    variance_BC1 = centred_BCT.square().sum(2, keepdim=True) / counts_B11
    scale_BC1 = norm.weight[:, None] * torch.rsqrt(variance_BC1 + norm.eps)
    return centred_BCT * scale_BC1 + norm.bias[:, None]


def draw_spans(lengths: list[int], size: int, share: float, span: int, least: int = 0) -> Tensor:
    """Boolean hidden_BS: spans of places, which together hide about this share of each row's length.

    Drawn from torch's generator on the CPU, whose state is a part of a checkpoint, so that a resume draws the same.
    """
    hidden_BS = torch.zeros(len(lengths), size, dtype=torch.bool)
    for row, length in enumerate(lengths):
        count = max(int(share * length / span + torch.rand(()).item()), least)
        count = min(count, length // span)
        starts = torch.randperm(max(length - span + 1, 0))[:count]
        hidden_BS[row, (starts[:, None] + torch.arange(span)).flatten()] = True
    return hidden_BS


OUTPUT_LAYER = {"weight": "lm_head.weight", "bias": "lm_head.bias"}
_PREFIXES = (("feature_extractor.", "feature_extractor."), ("feature_projection.", "feature_projection."),
             ("encoder.", "transformer."))  # fmt: skip
_NAMES = {"masked_spec_embed": "mask_embedding"}
_WEIGHT_NORM = {"weight_g": "parametrizations.weight.original0", "weight_v": "parametrizations.weight.original1"}
SIZES = {
    "size": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads",
    "inner_size": "intermediate_size", "channels": "conv_dim", "kernels": "conv_kernel", "strides": "conv_stride",
    "convolution_bias": "conv_bias", "norm": "feat_extract_norm", "norm_first": "do_stable_layer_norm",
    "position_kernel": "num_conv_pos_embeddings", "position_groups": "num_conv_pos_embedding_groups",
}  # fmt: skip
_SPECIAL = {"<pad>": BLANK, "[PAD]": BLANK, "<unk>": UNKNOWN, "[UNK]": UNKNOWN}  # the others have our names
# What the layers cannot do otherwise: the key of the config, and the values it may have; None if it is not there.
_ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu", None),
    "feat_extract_activation": ("gelu", None),
    "layer_norm_eps": (1e-5, None),
    "feat_proj_layer_norm": (True, None),
    "conv_pos_batch_norm": (False, None),
    "add_adapter": (False, None),
    "adapter_attn_dim": (None,),
}


def own_name(name: str) -> str | None:
    """The name that a foreign tensor has in a `Wav2Vec2Encoder`; None if it has no place there."""
    name = re.sub(r"^(wav2vec2|hubert)\.", "", name)
    if name in _NAMES:
        return _NAMES[name]
    for foreign, own in _PREFIXES:
        if name.startswith(foreign):
            head, _, last = name.rpartition(".")
            name = f"{head}.{_WEIGHT_NORM.get(last, last)}"
            return own + name.removeprefix(foreign)
    return None


def fields_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the `Wav2Vec2Encoder` for a config.json; raises UsageError if it cannot represent it."""
    for key, allowed in _ONLY.items():
        if config.get(key) not in allowed:
            if "adapter" in key:
                raise UsageError(
                    f"The config has {key}: {config[key]!r}, and Wav2Vec2Encoder has no adapters. Take a model without "
                    "them, such as mms-300m or mms-1b."
                )
            raise UsageError(f"The config has {key}: {config[key]!r}, and Wav2Vec2Encoder can only do {allowed[0]!r}.")
    return {own: config[foreign] for own, foreign in SIZES.items() if foreign in config}


def features_of(config: Mapping[str, Any], preprocessor: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the features that it was trained on, raw samples."""
    rate = preprocessor.get("sampling_rate", 16000)
    return {"sample_rate": rate, "normalize": bool(preprocessor.get("do_normalize", True))}


def symbols_of(config: Mapping[str, Any], vocabulary: Mapping[str, int], delimiter: str, rows: int) -> list[str] | None:
    """The symbol of each row of the output layer, in the words of our tokenizers; None without a vocabulary."""
    if not vocabulary:
        return None
    symbols = [f"<row {row}>" for row in range(rows)]
    for text, label in vocabulary.items():
        if 0 <= label < rows:
            text = SPECIAL_SYMBOLS[_SPECIAL[text]] if text in _SPECIAL else text
            symbols[label] = " " if text == delimiter else text
    blank = config.get("pad_token_id", 0)
    if type(blank) is int and 0 <= blank < rows:
        symbols[blank] = SPECIAL_SYMBOLS[BLANK]
    return symbols

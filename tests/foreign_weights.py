"""Tiny random models of the reference implementation (transformers), saved as the hub has them.

transformers takes seconds to import, so it is imported when a model is made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import sonosco_like  # noqa: F401  (transformers imports torchaudio, which needs our stand-in)

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
    "conv_dim": [16, 16, 16], "conv_kernel": [10, 3, 2], "conv_stride": [5, 2, 2],
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "vocab_size": 8,
}  # fmt: skip
SMALL_WHISPER = {
    "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_layers": 1,
    "decoder_attention_heads": 2, "decoder_ffn_dim": 16, "num_mel_bins": 80, "max_source_positions": 100,
    "vocab_size": 60, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3,
}  # fmt: skip


def wav2vec2(kind: str = "Wav2Vec2Model", seed: int = 0, **changes: Any) -> Any:
    """A `Wav2Vec2Model`, `Wav2Vec2ForCTC`, `HubertModel` ...; `feat_extract_norm: layer` has biases as published."""
    config = getattr(transformers(), "HubertConfig" if kind.startswith("Hubert") else "Wav2Vec2Config")
    settings = {**SMALL, "conv_bias": changes.get("feat_extract_norm") == "layer", **changes}
    return _make(kind, config(**settings), seed)


def whisper(kind: str = "WhisperModel", seed: int = 0, **changes: Any) -> Any:
    """A `WhisperModel`, `WhisperForConditionalGeneration` ..."""
    return _make(kind, transformers().WhisperConfig(**{**SMALL_WHISPER, **changes}), seed)


def save_foreign(model: Any, folder: Path, **options: Any) -> Path:
    """The folder, written by the reference implementation."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.save_pretrained(folder, **options)
    return folder


def with_old_names(folder: Path) -> Path:
    """A folder of Wav2Vec2, its position kernel renamed to what older versions wrote."""
    tensors = load_file(folder / "model.safetensors")
    for number, old in enumerate(("weight_g", "weight_v")):
        name = next(name for name in tensors if name.endswith(f"parametrizations.weight.original{number}"))
        tensors[f"{name.partition('parametrizations')[0]}{old}"] = tensors.pop(name)
    save_file(tensors, folder / "model.safetensors")
    return folder


def save_vocabulary(folder: Path, vocabulary: dict[str, int], delimiter: str = "|") -> None:
    """The files of a tokenizer over characters."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"word_delimiter_token": delimiter}), encoding="utf-8")


def transformers() -> Any:
    """The package, imported after our stand-in for the compiled part of torchaudio is in place."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    return transformers


def _make(kind: str, config: Any, seed: int) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers(), kind)(config).eval()
        with torch.no_grad():  # a fresh model has zeros and ones where a trained one has not
            for parameter in model.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
    return model

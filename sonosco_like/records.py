"""The records that pass between rooms: batches from data to models, and the results of models and decoders.

Layer 0. Shape suffixes, used in the whole package:
    B batch, T input frames, F features per frame, U label positions, V vocabulary,
    S encoded frames (after sub-sampling), D encoded size, H attention heads, N samples of a waveform.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

# Every vocabulary begins with these symbols, so that models and tokenizers agree on them.
BLANK, START, END, UNKNOWN = 0, 1, 2, 3
SPECIAL_SYMBOLS = ("<blank>", "<s>", "</s>", "<unk>")
UNKNOWN_TEXT = "⁇"  # what UNKNOWN is decoded to


@dataclass(frozen=True, slots=True)
class Utterance:
    """One row of a manifest."""

    id: str
    audio_filepath: str
    duration: float
    text: str
    speaker: str | None = None
    offset: float = 0.0


@dataclass(slots=True)
class Batch:
    """Utterances of similar length, padded to one.

    ```
    features_BTF       float32  zero beyond feature_lengths_B
    feature_lengths_B  int64    frames of each utterance, at least one of them equal to T
    labels_BU          int64    without START and END, BLANK beyond label_lengths_B
    label_lengths_B    int64
    ids, texts         B        as in the manifest; texts after cleaning
    durations          B        seconds of audio
    ```
    """

    features_BTF: Tensor
    feature_lengths_B: Tensor
    labels_BU: Tensor
    label_lengths_B: Tensor
    ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return self.features_BTF.shape[0]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """The same batch with its tensors on a device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """The same batch in page-locked memory; the name is the one `DataLoader(pin_memory=True)` calls."""
        return self._map(lambda tensor: tensor.pin_memory())

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        moved: dict[str, Any] = {
            f.name: change(value) for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)
        }
        return replace(self, **moved)


@dataclass(slots=True)
class Output:
    """The output of a model for a batch. A CTC model fills the `ctc` pair, an attention model the `attention` fields,
    a joint one both.

    ```
    encoded_BSD          the encoder's view of the audio, padding zeroed
    encoded_lengths_B    int64, frames of it that are real
    ctc_logits_BSV       unnormalised, BLANK at index 0; lengths are encoded_lengths_B
    attention_logits_BUV unnormalised, teacher-forced: position u predicts label u, the last one END (U = labels + 1)
    attention_BHUS       attention weights behind attention_logits_BUV, rows summing to 1 over real frames
    ```
    """

    encoded_BSD: Tensor
    encoded_lengths_B: Tensor
    ctc_logits_BSV: Tensor | None = None
    attention_logits_BUV: Tensor | None = None
    attention_BHUS: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A recognised symbol or word, with its start and end in seconds and the model's confidence in it."""

    text: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One possible transcript of an utterance: its text and labels, its score (higher is better), tokens and words."""

    text: str
    labels: tuple[int, ...]
    score: float
    tokens: tuple[Token, ...] = ()
    words: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """One example: its id, the reference text, and the text that the model recognised.

    For data that is not speech, the reference is the target of the example and the hypothesis is the model's output.
    """

    id: str
    reference: Any
    hypothesis: Any

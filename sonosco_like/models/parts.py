"""The three parts every model here is made of: an encoder, a CTC output, an attention decoder.

A part is configured by its fields, before it is known how wide its input is; the model then calls `build`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any

from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.models.masking import reduced_lengths
from sonosco_like.records import SPECIAL_SYMBOLS, Batch, Output
from sonosco_like.serialization import serializable


class Encoder(nn.Module, ABC):
    """Turns feature frames into fewer, wider frames."""

    @property
    @abstractmethod
    def frame_reduction(self) -> int:
        """How many input frames one encoded frame stands for."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Width of an encoded frame."""

    @abstractmethod
    def build(self, features: int) -> None:
        """Make the layers, for so many features per frame."""

    @abstractmethod
    def forward(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(encoded_BSD, encoded_lengths_B), padding zeroed."""


class Decoder(nn.Module, ABC):
    """Writes labels while looking at the encoded frames; `interfaces.AttentionDecoder` is its face for searches."""

    @abstractmethod
    def build(self, encoded_size: int, vocabulary_size: int) -> None:
        """Make the layers, for so wide frames and so many symbols."""

    @abstractmethod
    def forward(
        self, encoded_BSD: Tensor, encoded_lengths_B: Tensor, labels_BU: Tensor, label_lengths_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Teacher-forced (logits_BUV, attention_BHUS) with one position more than labels: it predicts END."""

    @abstractmethod
    def start(self, encoded_BSD: Tensor, encoded_lengths_B: Tensor) -> Any:
        """The state before the first step: one row per utterance."""

    @abstractmethod
    def step(self, labels_N: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """(log_probs_NV, attention_NHS, state) after the last label of each row."""


@serializable
class Recogniser(nn.Module):
    """Any encoder with a CTC output (`ctc: true`), any attention decoder, or both; LAS and the others are kinds of it.

    `vocabulary_size` counts the special symbols of `records`; `features` is the number of values per input frame.
    """

    vocabulary_size: int
    features: int
    encoder: Encoder
    # A plain default None would be an attribute of the class, and hide the module that torch keeps elsewhere.
    decoder: Decoder | None = field(default_factory=lambda: None)
    ctc: bool = True

    def __post_init__(self) -> None:
        """Build the parts for one another's sizes."""
        self._check()
        self.encoder.build(self.features)
        if self.decoder is not None:
            self.decoder.build(self.encoder.output_size, self.vocabulary_size)
        self.ctc_output = nn.Linear(self.encoder.output_size, self.vocabulary_size) if self.ctc else None

    @property
    def has_ctc(self) -> bool:
        """Whether `ctc_logits` may be called."""
        return self.ctc

    @property
    def frame_reduction(self) -> int:
        """How many input frames one encoded frame stands for."""
        return self.encoder.frame_reduction

    def output_lengths(self, feature_lengths_B: Tensor) -> Tensor:
        """Encoded frames for so many input frames."""
        return reduced_lengths(feature_lengths_B, self.frame_reduction)

    def encode(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(encoded_BSD, encoded_lengths_B), padding zeroed."""
        encoded_BSD, encoded_lengths_B = self.encoder(features_BTF, feature_lengths_B)
        return encoded_BSD, encoded_lengths_B

    def ctc_logits(self, encoded_BSD: Tensor) -> Tensor:
        """logits_BSV, unnormalised, BLANK at 0."""
        if self.ctc_output is None:
            raise UsageError(f"This {type(self).__name__} has no CTC output. Give it one with `ctc: true`.")
        logits_BSV: Tensor = self.ctc_output(encoded_BSD)
        return logits_BSV

    def forward(self, batch: Batch) -> Output:
        """The encoded batch, with CTC logits and teacher-forced attention logits as far as the model has them."""
        encoded_BSD, encoded_lengths_B = self.encode(batch.features_BTF, batch.feature_lengths_B)
        output = Output(encoded_BSD, encoded_lengths_B)
        if self.ctc:
            output.ctc_logits_BSV = self.ctc_logits(encoded_BSD)
        if self.decoder is not None:
            output.attention_logits_BUV, output.attention_BHUS = self.decoder(
                encoded_BSD, encoded_lengths_B, batch.labels_BU, batch.label_lengths_B
            )
        return output

    def _check(self) -> None:
        if self.vocabulary_size <= len(SPECIAL_SYMBOLS):
            raise UsageError(
                f"`vocabulary_size` must be more than {len(SPECIAL_SYMBOLS)}, the special symbols that begin every "
                f"vocabulary, got {self.vocabulary_size}."
            )
        if self.features < 1:
            raise UsageError(f"`features` must be at least 1, got {self.features}.")
        if not self.ctc and self.decoder is None:
            raise UsageError("A model needs an output: set `ctc: true` or give it a `decoder`.")

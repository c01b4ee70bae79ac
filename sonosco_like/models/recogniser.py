"""What every model is made of, and what it offers to searches, losses and callbacks, whatever its architecture.

A model is an encoder with a CTC output, an attention decoder, or both. Each part is configured by its fields, before
the width of its input is known; the model then calls `build`. A model whose sizes are left out is built when a trainer
gives it the sizes of its data.

Shape suffixes as in `records`; here also N, the rows of a search: one per running hypothesis, several per utterance.

A beam search over an attention model, in terms of this file:

    encoded_BSD, encoded_lengths_B = model.encode(features_BTF, feature_lengths_B)
    state = model.attention_decoder.start(encoded_BSD, encoded_lengths_B)          # row b is utterance b
    state = state.select(utterance_of_row_N)                             # e.g. [0, 0, 0, 1, 1, 1]: three beams each
    labels_N = full of START
    repeat: log_probs_NV, attention_NHS, state = model.attention_decoder.step(labels_N, state)
            choose; state = state.select(row_continued_N); labels_N = label_chosen_N
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.models.adapters import LowRankAdapters, is_of_adapter
from sonosco_like.records import SPECIAL_SYMBOLS, Batch, Output
from sonosco_like.serialization import serializable
from sonosco_like.tensors import reduced_lengths

StateT = TypeVar("StateT", bound="DecoderState")


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
        """Make the layers, for this number of features per frame."""

    def output_lengths(self, feature_lengths_B: Tensor) -> Tensor:
        """How many encoded frames come of these numbers of input frames; a last incomplete group counts as one."""
        return reduced_lengths(feature_lengths_B, self.frame_reduction)

    @abstractmethod
    def forward(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(encoded_BSD, encoded_lengths_B), with zeros in the padding."""


@runtime_checkable
class DecoderState(Protocol):
    """What an attention decoder remembers of each row; a search only picks and repeats rows."""

    def select(self: StateT, index_N: Tensor) -> StateT:
        """The rows of `index_N` (int64), in that order; a row may be left out or repeated."""
        ...


class AttentionDecoder(nn.Module, ABC):
    """The network that writes one label after another while it looks at the encoded frames.

    It gives probabilities; which labels are chosen is the matter of a search (`decoding.Decoder`). A state is never
    changed in place. `symbol_layers` names the layers whose weights have a row for each symbol, so that fine-tuning
    with another alphabet can keep the rows of the symbols that stay.
    """

    symbol_layers: ClassVar[tuple[str, ...]] = ("embedding", "output")

    @abstractmethod
    def build(self, encoded_size: int, vocabulary_size: int) -> None:
        """Make the layers, for encoded frames of this width and this number of symbols."""

    @abstractmethod
    def forward(
        self, encoded_BSD: Tensor, encoded_lengths_B: Tensor, labels_BU: Tensor, label_lengths_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Teacher-forced (logits_BUV, attention_BHUS) with one position more than `labels_BU`: it predicts END."""

    @abstractmethod
    def start(self, encoded_BSD: Tensor, encoded_lengths_B: Tensor) -> DecoderState:
        """The state before the first step: one row per utterance."""

    @abstractmethod
    def step(self, labels_N: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """(log_probs_NV, attention_NHS, state) after the last label of each row, which is START at first."""


@runtime_checkable
class SpeechModel(Protocol):
    """What searches and losses need of a model; `Recogniser` and all models here have it.

    `forward` fills `Output` with what the model has.
    """

    vocabulary_size: int
    features: int

    @property
    def attention_decoder(self) -> AttentionDecoder | None:
        """The attention decoder; None for a model without attention."""
        ...

    @property
    def has_ctc(self) -> bool:
        """Whether the model has a CTC output, so that `ctc_logits` may be called."""
        ...

    @property
    def frame_reduction(self) -> int:
        """How many input frames one encoded frame stands for."""
        ...

    def output_lengths(self, feature_lengths_B: Tensor) -> Tensor:
        """How many encoded frames the encoder makes of these numbers of input frames."""
        ...

    def encode(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(encoded_BSD, encoded_lengths_B), with zeros in the padding."""
        ...

    def ctc_logits(self, encoded_BSD: Tensor) -> Tensor:
        """logits_BSV, unnormalised, BLANK at 0."""
        ...

    def __call__(self, batch: Batch) -> Output:
        """The output for a batch, teacher-forced by its labels."""
        ...


@serializable(version=2)
class Recogniser(nn.Module):
    """Any encoder with a CTC output (`ctc: true`), any attention decoder, or both; LAS and the others are kinds of it.

    `vocabulary_size` counts the special symbols of `records`; `features` is the number of values per input frame. One
    that is left out, or 0, follows from the tokenizer or the features of the training data.

    With `adapters` a fine-tuning changes only small matrices beside frozen layers.

    The module of the `attention_decoder` is called `decoder`, as are its weights: so it was in version 1, in files too.
    """

    former_names: ClassVar[dict[str, str]] = {"attention_decoder": "decoder"}

    vocabulary_size: int = 0
    features: int = 0
    encoder: Encoder
    # A plain default None would be an attribute of the class, and hide the module that torch keeps elsewhere.
    attention_decoder: AttentionDecoder | None = field(default_factory=lambda: None)
    ctc: bool = True
    adapters: LowRankAdapters | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(self.former_names.get(name, name), value)

    def __post_init__(self) -> None:
        self._check()
        self.is_built = False
        if self.vocabulary_size and self.features:
            self._make_layers()

    def take_sizes(self, vocabulary_size: int, features: int) -> None:
        """Use the sizes of the data for those that were left out, and make the layers."""
        self.vocabulary_size = self.vocabulary_size or vocabulary_size
        self.features = self.features or features
        self._check()
        self._make_layers()

    def _make_layers(self) -> None:
        self.build()
        if self.adapters is not None:
            self.adapters.attach(self)

    def build(self) -> None:
        """Make the layers, once both sizes are known."""
        self.is_built = True
        self.encoder.build(self.features)
        if self.attention_decoder is not None:
            self.attention_decoder.build(self.encoder.output_size, self.vocabulary_size)
        self.ctc_output = nn.Linear(self.encoder.output_size, self.vocabulary_size) if self.ctc else None

    @property
    def has_ctc(self) -> bool:
        return self.ctc

    @property
    def symbol_weights(self) -> list[str]:
        """The names of the weights with a row for each symbol: those of output layers and embeddings of labels."""
        layers = ["ctc_output"]
        if self.attention_decoder is not None:
            layers += [f"decoder.{layer}" for layer in self.attention_decoder.symbol_layers]
        names = (name for name in self.state_dict() if not is_of_adapter(name))
        return [name for name in names if name.rpartition(".")[0] in layers]

    @property
    def frame_reduction(self) -> int:
        return self.encoder.frame_reduction

    def output_lengths(self, feature_lengths_B: Tensor) -> Tensor:
        return self.encoder.output_lengths(feature_lengths_B)

    def encode(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        if not self.is_built:
            raise UsageError(
                f"This {type(self).__name__} has no layers yet: give it `vocabulary_size` and `features`, or let a "
                "trainer take them from its data."
            )
        encoded_BSD, encoded_lengths_B = self.encoder(features_BTF, feature_lengths_B)
        return encoded_BSD, encoded_lengths_B

    def ctc_logits(self, encoded_BSD: Tensor) -> Tensor:
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
        if self.attention_decoder is not None:
            output.attention_logits_BUV, output.attention_BHUS = self.attention_decoder(
                encoded_BSD, encoded_lengths_B, batch.labels_BU, batch.label_lengths_B
            )
        return output

    def _check(self) -> None:
        if self.vocabulary_size and self.vocabulary_size <= len(SPECIAL_SYMBOLS):
            raise UsageError(
                f"`vocabulary_size` must be more than {len(SPECIAL_SYMBOLS)}, the special symbols that begin every "
                f"vocabulary, got {self.vocabulary_size}."
            )
        if self.features < 0:
            raise UsageError(f"`features` must be at least 1, got {self.features}.")
        if not self.ctc and self.attention_decoder is None:
            raise UsageError("A model needs an output: set `ctc: true` or give it an `attention_decoder`.")

    @staticmethod
    def upgrade(version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of version 1, whose `attention_decoder` was called `decoder`; new names stay."""
        if "attention_decoder" in fields:  # a `decoder` beside it is a mistake, and is named as one
            return fields
        return {"attention_decoder" if name == "decoder" else name: value for name, value in fields.items()}


# Not in the class, where a field of this name is defined.
Recogniser.attention_decoder = property(lambda model: model.decoder)  # type: ignore[assignment]

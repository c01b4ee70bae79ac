"""What every model offers to decoders, losses and callbacks, whatever its architecture.

Shape suffixes as in `records`; here also N, the rows of a search: one per running hypothesis, each an utterance's.

A beam search over an attention model, in terms of this file:

    encoded_BSD, encoded_lengths_B = model.encode(features_BTF, feature_lengths_B)
    state = model.decoder.start(encoded_BSD, encoded_lengths_B)          # row b is utterance b
    state = state.select(utterance_of_row_N)                             # e.g. [0, 0, 0, 1, 1, 1]: three beams each
    labels_N = full of START
    repeat: log_probs_NV, attention_NHS, state = model.decoder.step(labels_N, state)
            choose; state = state.select(row_continued_N); labels_N = label_chosen_N
"""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor

from sonosco_like.records import Batch, Output

StateT = TypeVar("StateT", bound="DecoderState")


@runtime_checkable
class DecoderState(Protocol):
    """What a decoder remembers of each row. Opaque to the search, which may only pick and repeat rows."""

    def select(self: StateT, index_N: Tensor) -> StateT:
        """The rows of `index_N` (int64), in that order; a row may be left out or repeated."""
        ...


@runtime_checkable
class AttentionDecoder(Protocol[StateT]):
    """Writes one label after another while looking at the encoded audio. A state is never changed in place."""

    def start(self, encoded_BSD: Tensor, encoded_lengths_B: Tensor) -> StateT:
        """The state before the first step: one row per utterance."""
        ...

    def step(self, labels_N: Tensor, state: StateT) -> tuple[Tensor, Tensor, StateT]:
        """(log_probs_NV, attention_NHS, state) after the last label of each row, which is START at first."""
        ...


@runtime_checkable
class SpeechModel(Protocol):
    """An encoder with a CTC output, an attention decoder, or both; `forward` fills `Output` accordingly.

    `decoder` is None for a model without attention; `has_ctc` says whether `ctc_logits` may be called.
    """

    vocabulary_size: int
    features: int

    @property
    def decoder(self) -> AttentionDecoder[DecoderState] | None:
        """The attention decoder, if the model has one."""
        ...

    @property
    def has_ctc(self) -> bool:
        """Whether the model has a CTC output."""
        ...

    @property
    def frame_reduction(self) -> int:
        """How many input frames one encoded frame stands for."""
        ...

    def output_lengths(self, feature_lengths_B: Tensor) -> Tensor:
        """Encoded frames for so many input frames."""
        ...

    def encode(self, features_BTF: Tensor, feature_lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(encoded_BSD, encoded_lengths_B), padding zeroed."""
        ...

    def ctc_logits(self, encoded_BSD: Tensor) -> Tensor:
        """logits_BSV, unnormalised, BLANK at 0."""
        ...

    def __call__(self, batch: Batch) -> Output:
        """The teacher-forced view of a batch."""
        ...

"""What every decoder offers: a model's output in, readings of each utterance out, the best one first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from sonosco_like.errors import UsageError
from sonosco_like.models.interfaces import AttentionDecoder, DecoderState, SpeechModel
from sonosco_like.records import END, START, Hypothesis, Output


class Vocabulary(Protocol):
    """The part of a tokenizer that decoding needs."""

    @property
    def symbols(self) -> Sequence[str]:
        """The symbol of each label; a space, or `▁` at the front, begins a word."""
        ...

    def decode(self, labels: Sequence[int]) -> str:
        """The text that labels stand for."""
        ...


class Decoder(ABC):
    """Finds what was said.

    Its fields are settings; what belongs to a run comes with each call: the model's output and vocabulary, and the
    seconds that one encoded frame stands for (frame shift of the features times the reduction of the model; left at
    one, times are in frames).
    """

    @abstractmethod
    def decode(
        self,
        output: Output,
        vocabulary: Vocabulary,
        *,
        model: SpeechModel | None = None,
        frame_seconds: float = 1.0,
    ) -> list[list[Hypothesis]]:
        """The readings of each utterance, best first, at least one each; attention decoders need the `model` too."""

    def texts(self, output: Output, vocabulary: Vocabulary, *, model: SpeechModel | None = None) -> list[str]:
        """The best text of each utterance."""
        return [readings[0].text for readings in self.decode(output, vocabulary, model=model)]


@torch.no_grad()
def ctc_log_probs(output: Output) -> Tensor:
    """log_probs_BSV of a CTC output, in which START and END cannot be said."""
    if output.ctc_logits_BSV is None:
        raise UsageError(
            "This decoder reads a CTC output, but the model gave none. "
            "Use GreedyAttentionDecoder or AttentionBeamDecoder for a model with an attention decoder only."
        )
    log_probs_BSV = output.ctc_logits_BSV.float().log_softmax(-1)
    log_probs_BSV[..., [START, END]] = -torch.inf
    return log_probs_BSV


def attention_decoder_of(model: SpeechModel | None) -> AttentionDecoder[DecoderState]:
    """The part of a model that writes labels one after another."""
    if model is None or model.decoder is None:
        raise UsageError(
            "This decoder needs a model with an attention decoder, passed as `model`, but there is none. "
            "Use GreedyCTCDecoder or CTCBeamDecoder for a model with a CTC output only."
        )
    return model.decoder


def most_labels(encoded_lengths_B: Tensor, ratio: float) -> Tensor:
    """How many labels an utterance may have, so that a decoder that never says END comes to an end."""
    return (encoded_lengths_B * ratio).ceil().long()


def require_positive(**settings: float) -> None:
    """Refuse settings that must be above zero and are not."""
    for name, value in settings.items():
        if value <= 0:
            raise UsageError(f"`{name}` must be above zero, got {value}.")

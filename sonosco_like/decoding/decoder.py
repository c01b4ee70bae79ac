"""The interface of every search: from the output of a model to the hypotheses of each utterance, best first.

Shape suffixes as in `records`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from sonosco_like.errors import UsageError
from sonosco_like.models.recogniser import AttentionDecoder, SpeechModel
from sonosco_like.records import END, SPECIAL_SYMBOLS, START, UNKNOWN, UNKNOWN_TEXT, Hypothesis, Output

WORD_MARK = "▁"  # SentencePiece writes this where a word begins


class Vocabulary(Protocol):
    """The part of a tokenizer that decoding needs."""

    @property
    def symbols(self) -> Sequence[str]:
        """The symbol of each label; a space, or `▁` at the front, begins a word."""
        ...

    def decode(self, labels: Sequence[int]) -> str:
        """The text of these labels."""
        ...


class WordPart(NamedTuple):
    """A symbol as a part of words; a gap between words begins a word and has no letters."""

    text: str
    begins_word: bool


def word_part_of(symbol: str) -> WordPart:
    """The letters of a symbol, and whether a word begins with it."""
    if symbol in SPECIAL_SYMBOLS:
        return WordPart(UNKNOWN_TEXT if symbol == SPECIAL_SYMBOLS[UNKNOWN] else "", False)
    plain = symbol.replace(WORD_MARK, " ")
    return WordPart(plain.strip(" "), plain.startswith(" "))


class Decoder(ABC):
    """A search for the text of an utterance in the output of a model.

    The fields of a decoder are settings. What belongs to a run comes with each call: the model's output and vocabulary,
    and the seconds of one encoded frame (frame shift of the features times the reduction of the model; with the default
    of one, times are in frames).
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
        """The hypotheses of each utterance, best first, at least one; searches over attention need the `model`, too."""

    def texts(self, output: Output, vocabulary: Vocabulary, *, model: SpeechModel | None = None) -> list[str]:
        """The best text of each utterance."""
        return [hypotheses[0].text for hypotheses in self.decode(output, vocabulary, model=model)]


@torch.no_grad()
def ctc_log_probs(output: Output) -> Tensor:
    """log_probs_BSV of a CTC output; START and END are impossible."""
    if output.ctc_logits_BSV is None:
        raise UsageError(
            "This decoder reads a CTC output, but the model gave none. "
            "Use GreedyAttentionDecoder or AttentionBeamDecoder for a model with an attention decoder only."
        )
    log_probs_BSV = output.ctc_logits_BSV.float().log_softmax(-1)
    log_probs_BSV[..., [START, END]] = -torch.inf
    return log_probs_BSV


def attention_decoder_of(model: SpeechModel | None) -> AttentionDecoder:
    """The attention decoder of a model that has one."""
    if model is None or model.decoder is None:
        raise UsageError(
            "This decoder needs a model with an attention decoder, passed as `model`, but there is none. "
            "Use GreedyCTCDecoder or CTCBeamDecoder for a model with a CTC output only."
        )
    return model.decoder


def label_limits(encoded_lengths_B: Tensor, ratio: float) -> Tensor:
    """The most labels that each utterance may have, so that a search ends even if the model never writes END."""
    return (encoded_lengths_B * ratio).ceil().long()


def require_positive(**settings: float) -> None:
    """Refuse settings that are not above zero."""
    for name, value in settings.items():
        if value <= 0:
            raise UsageError(f"`{name}` must be above zero, got {value}.")

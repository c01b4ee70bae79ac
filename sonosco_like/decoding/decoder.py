"""The interface of every search, and its results: the hypotheses of each utterance, with words and their times.

Shape suffixes as in `records`; here also N paths.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sonosco_like.errors import UsageError
from sonosco_like.models.recogniser import AttentionDecoder, SpeechModel
from sonosco_like.records import BLANK, END, SPECIAL_SYMBOLS, START, UNKNOWN, UNKNOWN_TEXT, Hypothesis, Output, Token

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
    if model is None or model.attention_decoder is None:
        raise UsageError(
            "This decoder needs a model with an attention decoder, passed as `model`, but there is none. "
            "Use GreedyCTCDecoder or CTCBeamDecoder for a model with a CTC output only."
        )
    return model.attention_decoder


def label_limits(encoded_lengths_B: Tensor, ratio: float) -> Tensor:
    """The most labels that each utterance may have, so that a search ends even if the model never writes END."""
    return (encoded_lengths_B * ratio).ceil().long()


def require_positive(**settings: float) -> None:
    """Refuse settings that are not above zero."""
    for name, value in settings.items():
        if value <= 0:
            raise UsageError(f"`{name}` must be above zero, got {value}.")


class Span(NamedTuple):
    """A label and its frames, from `first` up to but without `end`."""

    label: int
    first: int
    end: int
    confidence: float


def ctc_spans(paths_NS: NDArray[np.int64], log_probs_NS: NDArray[np.float32]) -> list[list[Span]]:
    """The spans of CTC paths: runs of one label, without blanks; the confidence is the peak probability of the run.

    `log_probs_NS` are those of the labels on each path. Frames beyond an utterance must hold BLANK.
    """
    rows, frames = paths_NS.shape
    spans: list[list[Span]] = [[] for _ in range(rows)]
    if paths_NS.size == 0:
        return spans
    begins_NS = np.ones_like(paths_NS, dtype=bool)
    begins_NS[:, 1:] = paths_NS[:, 1:] != paths_NS[:, :-1]
    begins = np.flatnonzero(begins_NS)
    peaks = np.exp(np.maximum.reduceat(log_probs_NS.ravel(), begins))
    ends = np.append(begins[1:], rows * frames)
    labels = paths_NS.ravel()[begins]
    is_label = labels != BLANK
    columns = (labels[is_label], begins[is_label], ends[is_label], peaks[is_label])
    for label, begin, end, peak in zip(*(column.tolist() for column in columns), strict=True):
        row, first = divmod(begin, frames)
        spans[row].append(Span(label, first, end - row * frames, min(1.0, peak)))
    return spans


def attention_spans(
    attention_US: NDArray[np.float32], labels: Sequence[int], confidences: Sequence[float]
) -> list[Span]:
    """The frame of each label: the best path through the attention weights that never goes back in time."""
    if not labels:
        return []
    log_US = np.log(attention_US[: len(labels)].astype(np.float64) + 1e-10)
    total_US = np.empty_like(log_US)
    total_US[0] = log_US[0]
    for position in range(1, len(labels)):
        total_US[position] = log_US[position] + np.maximum.accumulate(total_US[position - 1])
    frame, frames = log_US.shape[1] - 1, []
    for total_S in total_US[::-1]:
        frame = int(total_S[: frame + 1].argmax())
        frames.append(frame)
    return [Span(label, frame, frame + 1, c) for label, frame, c in zip(labels, frames[::-1], confidences, strict=True)]


def hypothesis_of(spans: Sequence[Span], score: float, vocabulary: Vocabulary, frame_seconds: float) -> Hypothesis:
    """A hypothesis with its text, and its tokens and words in seconds."""
    labels, symbols = tuple(span.label for span in spans), vocabulary.symbols
    tokens = tuple(
        Token(symbols[label], first * frame_seconds, end * frame_seconds, confidence)
        for label, first, end, confidence in spans
    )
    return Hypothesis(vocabulary.decode(labels), labels, score, tokens, words_of_tokens(tokens))


def words_of_tokens(tokens: Sequence[Token]) -> tuple[Token, ...]:
    """Tokens joined into words; the confidence of a word is the geometric mean of its tokens' confidences."""
    groups: list[list[tuple[str, Token]]] = [[]]
    for token in tokens:
        part = word_part_of(token.text)
        if part.begins_word and groups[-1]:
            groups.append([])
        if part.text:
            groups[-1].append((part.text, token))
    return tuple(_join_word(group) for group in groups if group)


def _join_word(group: list[tuple[str, Token]]) -> Token:
    tokens = [token for _, token in group]
    mean_log = sum(math.log(max(token.confidence, 1e-30)) for token in tokens) / len(tokens)
    return Token("".join(text for text, _ in group), tokens[0].start, tokens[-1].end, math.exp(mean_log))

"""The utterances a comparison looks at closely: chosen once, and what a validation found out about each of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sonosco_like.metrics import Judged
from sonosco_like.records import BLANK, END, Output, Token

_MOST_CTC_ROWS = 40
_SHORT = {BLANK: "∅", END: "end"}


@dataclass(frozen=True, slots=True)
class Weights:
    """How much of each token (rows U) the model saw in each encoded frame (columns S), from 0 to 1."""

    name: str
    tokens: tuple[str, ...]
    weights_US: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Sample:
    """One utterance of a validation: what was said, what the model saw, and what it made of it.

    `words` are those that were heard freely, in seconds, as far as the decoder knows when it heard them.
    """

    id: str
    reference: str
    hypothesis: str
    duration: float
    features_TF: NDArray[np.float32]
    weights: tuple[Weights, ...]
    words: tuple[Token, ...]


@dataclass(slots=True)
class Gathering:
    """Collects the samples of one validation, batch by batch.

    Once they are `chosen` it is those that are wanted. Before, it is the `count` utterances that come first in an order
    that depends on the seed and on their names alone: neither on batches nor on how many utterances there are.
    """

    count: int
    seed: int
    chosen: Sequence[str] | None
    found: dict[str, Sample] = field(default_factory=dict)

    def wanted(self, ids: Iterable[str]) -> list[int]:
        """The rows of a batch that may be samples."""
        if self.chosen is not None:
            return [row for row, name in enumerate(ids) if name in self.chosen]
        if not self.count:
            return []
        last = max(map(self._order, self.found)) if len(self.found) >= self.count else None
        return [row for row, name in enumerate(ids) if last is None or self._order(name) < last]

    def keep(self, sample: Sample) -> None:
        """Take a sample; one that comes later in the order makes room for it."""
        self.found[sample.id] = sample
        if self.chosen is None and len(self.found) > self.count:
            del self.found[max(self.found, key=self._order)]

    def samples(self) -> list[Sample]:
        """What was found, in an order that stays the same."""
        order = list(self.chosen) if self.chosen is not None else sorted(self.found, key=self._order)
        return [self.found[name] for name in order if name in self.found]

    def _order(self, name: str) -> bytes:
        return hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=8).digest()


def sample_of(judged: Judged, row: int, hypothesis: str, symbols: Sequence[str]) -> Sample:
    """What a judged batch holds of one utterance, on the host."""
    batch = judged.batch
    duration = batch.durations[row] if batch.durations else 0.0
    frames = int(batch.feature_lengths_B[row])
    return Sample(
        id=batch.ids[row],
        reference=batch.texts[row],
        hypothesis=hypothesis,
        duration=duration,
        features_TF=_array(batch.features_BTF[row, :frames]),
        weights=tuple(_weights_of(judged, row, symbols)),
        words=_words_of(judged, row, duration),
    )


def _weights_of(judged: Judged, row: int, symbols: Sequence[str]) -> Iterable[Weights]:
    output, frames = judged.output, int(judged.output.encoded_lengths_B[row])
    if output.attention_BHUS is not None:
        length = int(judged.batch.label_lengths_B[row])
        labels = [*judged.batch.labels_BU[row, :length].tolist(), END]
        attention_US = output.attention_BHUS[row].float().mean(0)[: len(labels), :frames]
        yield Weights("attention", _tokens(labels, symbols), _array(attention_US))
    if output.ctc_logits_BSV is not None:
        yield _ctc_weights(output, row, frames, symbols)


def _ctc_weights(output: Output, row: int, frames: int, symbols: Sequence[str]) -> Weights:
    """The probabilities of the labels on the best path, in the order in which they are first heard, and of BLANK."""
    assert output.ctc_logits_BSV is not None
    probabilities_SV = output.ctc_logits_BSV[row, :frames].float().softmax(-1)
    heard = [label for label in dict.fromkeys(probabilities_SV.argmax(-1).tolist()) if label != BLANK]
    labels = [*heard[:_MOST_CTC_ROWS], BLANK]
    return Weights("ctc", _tokens(labels, symbols), _array(probabilities_SV[:, labels].T))


def _words_of(judged: Judged, row: int, duration: float) -> tuple[Token, ...]:
    readings = getattr(judged, "readings", None)
    if readings is None:
        return ()
    seconds = duration / max(1, int(judged.output.encoded_lengths_B[row]))
    return tuple(
        Token(word.text, word.start * seconds, min(duration, word.end * seconds), word.confidence)
        for word in readings[row].words
    )


def _tokens(labels: Iterable[int], symbols: Sequence[str]) -> tuple[str, ...]:
    return tuple(_SHORT.get(label) or symbols[label].replace(" ", "␣") for label in labels)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    array: Any = tensor.detach().float().cpu().contiguous().numpy()
    return np.array(array, dtype=np.float32)

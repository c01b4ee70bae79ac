"""The utterances that are compared at every validation: how they are chosen, and the data of each."""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sonosco_like.callbacks.destination import Audio
from sonosco_like.data.audio import load_audio
from sonosco_like.data.features import LogMel
from sonosco_like.errors import DataError, UsageError
from sonosco_like.events import AbstractCallback, Moment, TrainerContext
from sonosco_like.metrics import DecodedBatch
from sonosco_like.records import BLANK, END, Batch, Output, Token, Utterance
from sonosco_like.serialization import serializable, state

_MOST_CTC_ROWS = 40
_SHORT = {BLANK: "∅", END: "end"}


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight of each token (rows U) in each encoded frame (columns S), from 0 to 1."""

    name: str
    tokens: tuple[str, ...]
    weights_US: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Sample:
    """One utterance of a validation: its texts, its features, and the weights of the model.

    `words` are those of the free decoding with their times in seconds, if the decoder knows them.
    """

    id: str
    reference: str
    hypothesis: str
    duration: float
    features_TF: NDArray[np.float32]
    weights: tuple[Weights, ...]
    words: tuple[Token, ...]


@dataclass(slots=True)
class SampleCollector:
    """Collects the samples of one validation, batch by batch.

    These are the `chosen` ones if they are known. Otherwise they are the first `count` utterances in an order that
    depends on the seed and the ids alone, neither on the batches nor on the number of utterances.
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
        """Add a sample; if there are too many, the last one in the order is dropped."""
        self.found[sample.id] = sample
        if self.chosen is None and len(self.found) > self.count:
            del self.found[max(self.found, key=self._order)]

    def samples(self) -> list[Sample]:
        """The samples, in an order that is the same in every validation."""
        order = list(self.chosen) if self.chosen is not None else sorted(self.found, key=self._order)
        return [self.found[name] for name in order if name in self.found]

    def _order(self, name: str) -> bytes:
        return hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=8).digest()


def sample_of(decoded: DecodedBatch, row: int, hypothesis: str, symbols: Sequence[str]) -> Sample:
    """One utterance of a decoded batch, on the host."""
    batch = decoded.batch
    duration = batch.durations[row] if batch.durations else 0.0
    frames = int(batch.feature_lengths_B[row])
    return Sample(
        id=batch.ids[row],
        reference=batch.texts[row],
        hypothesis=hypothesis,
        duration=duration,
        features_TF=_visible(_array(batch.features_BTF[row, :frames])),
        weights=tuple(_weights_of(decoded, row, symbols)),
        words=_words_of(decoded, row, duration),
    )


def _visible(features_TF: NDArray[np.float32]) -> NDArray[np.float32]:
    """The features; of samples their log-mel bands, since a picture of a waveform shows nothing."""
    if features_TF.shape[1] > 1 or not len(features_TF):
        return features_TF
    samples_N = torch.from_numpy(features_TF[:, 0])
    return LogMel(mels=40)([samples_N])[0].numpy()


def _weights_of(decoded: DecodedBatch, row: int, symbols: Sequence[str]) -> Iterable[Weights]:
    output, frames = decoded.output, int(decoded.output.encoded_lengths_B[row])
    if output.attention_BHUS is not None:
        length = int(decoded.batch.label_lengths_B[row])
        labels = [*decoded.batch.labels_BU[row, :length].tolist(), END]
        attention_US = output.attention_BHUS[row].float().mean(0)[: len(labels), :frames]
        yield Weights("attention", _tokens(labels, symbols), _array(attention_US))
    if output.ctc_logits_BSV is not None:
        yield _ctc_weights(output, row, frames, symbols)


def _ctc_weights(output: Output, row: int, frames: int, symbols: Sequence[str]) -> Weights:
    """The probabilities of the labels on the best path, in the order of their first frames, and of BLANK."""
    assert output.ctc_logits_BSV is not None
    probabilities_SV = output.ctc_logits_BSV[row, :frames].float().softmax(-1)
    on_path = [label for label in dict.fromkeys(probabilities_SV.argmax(-1).tolist()) if label != BLANK]
    labels = [*on_path[:_MOST_CTC_ROWS], BLANK]
    return Weights("ctc", _tokens(labels, symbols), _array(probabilities_SV[:, labels].T))


def _words_of(decoded: DecodedBatch, row: int, duration: float) -> tuple[Token, ...]:
    hypotheses = getattr(decoded, "hypotheses_with_times", None)
    if hypotheses is None:
        return ()
    seconds = duration / max(1, int(decoded.output.encoded_lengths_B[row]))
    return tuple(
        Token(word.text, word.start * seconds, min(duration, word.end * seconds), word.confidence)
        for word in hypotheses[row].words
    )


def _tokens(labels: Iterable[int], symbols: Sequence[str]) -> tuple[str, ...]:
    return tuple(_SHORT.get(label) or symbols[label].replace(" ", "␣") for label in labels)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    array: Any = tensor.detach().float().cpu().contiguous().numpy()
    return np.array(array, dtype=np.float32)


logger = logging.getLogger(__name__)

ONLY_SET = "val"  # the validation set of a trainer that has only one


@serializable
class TranscriptSampler(AbstractCallback, ABC):
    """Follows the texts of the same few utterances of each validation set, from validation to validation.

    These are the utterances of `ids`, or else `samples` of them, chosen by `seed`; they stay the same, also when the
    run is resumed. With `audio` their recordings are shown too, with `pictures` their features and alignments.
    """

    samples: int = 16
    ids: list[str] = field(default_factory=list)
    seed: int = 0
    audio: bool = True
    pictures: bool = True
    ranks: list[int] | None = field(default_factory=lambda: [0])
    chosen: dict[str, list[str]] = state({})

    def __post_init__(self) -> None:
        if self.samples < 0:
            raise UsageError(f"`samples` counts utterances and must not be negative, got {self.samples}.")
        self._set: str | None = None
        self._collector = SampleCollector(0, 0, None)
        self._loader: Any = None

    @abstractmethod
    def texts(self, moment: Moment, decoded: DecodedBatch, rows: list[int]) -> Sequence[str]:
        """The texts that are compared with the references of these rows of a batch."""

    @abstractmethod
    def compare(self, samples: list[Sample], set_name: str, context: TrainerContext) -> None:
        """Log the samples of a finished validation."""

    def on_validation_start(self, moment: Moment) -> None:
        """Begin to collect samples."""
        self._set = moment.args.get("name") or ONLY_SET
        self._loader = moment.args.get("loader")
        chosen = self.chosen.get(self._set, self.ids or None)
        self._collector = SampleCollector(self.samples, self.seed, chosen)

    def on_prediction_end(self, moment: Moment) -> None:
        """Keep the samples in a batch of the current validation; predictions outside validations are ignored."""
        if self._set is None or not has_utterances(moment.result):
            return
        rows = self._collector.wanted(moment.result.batch.ids)
        if rows:
            symbols = moment.context.vocabulary.symbols
            for row, text in zip(rows, self.texts(moment, moment.result, rows), strict=True):
                self._collector.keep(sample_of(moment.result, row, text, symbols))

    def on_validation_end(self, moment: Moment) -> None:
        """Log the samples, and remember which they are."""
        name, self._set = self._set, None
        if name is None or moment.error is not None:
            return
        samples = self._collector.samples()
        if name not in self.chosen and samples:
            self._warn_about_missing(name, samples)
            self.chosen = {**self.chosen, name: [sample.id for sample in samples]}
        self.compare(samples, name, moment.context)
        self._loader, self._collector = None, SampleCollector(0, 0, None)

    def recordings(self, names: list[str]) -> dict[str, Audio]:
        """The recordings of utterances, if the loader of this validation has a manifest with them."""
        dataset = getattr(self._loader, "dataset", None)
        rate = getattr(getattr(dataset, "features", None), "sample_rate", None)
        utterances = getattr(dataset, "utterances", None)
        if not names or rate is None or utterances is None:
            return {}
        wanted = set(names)
        found = islice((utterance for utterance in utterances if utterance.id in wanted), len(wanted))
        recordings = {utterance.id: _recording(utterance, rate) for utterance in found}
        return {name: audio for name, audio in recordings.items() if audio is not None}

    def _warn_about_missing(self, name: str, samples: list[Sample]) -> None:
        missing = set(self.ids) - {sample.id for sample in samples}
        if missing:
            listed = ", ".join(sorted(missing)[:5])
            logger.warning("%s: not in the validation set %s: %s.", type(self).__name__, name, listed)


def has_utterances(decoded: Any) -> bool:
    """Whether a batch has utterances with ids; other data cannot be compared."""
    return isinstance(decoded, DecodedBatch) and isinstance(decoded.batch, Batch) and bool(decoded.batch.ids)


def _recording(utterance: Utterance, rate: int) -> Audio | None:
    try:
        samples_N = load_audio(utterance.audio_filepath, rate, utterance.offset, utterance.duration)
    except DataError as error:
        logger.warning("The recording of a sample cannot be shown: %s", error)
        return None
    return Audio(samples_N, rate) if len(samples_N) else None

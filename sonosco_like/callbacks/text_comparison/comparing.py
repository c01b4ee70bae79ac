"""What callbacks that compare texts have in common: which utterances they look at, and how they come by the texts."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from itertools import islice
from typing import Any

from sonosco_like.callbacks.media import Audio
from sonosco_like.callbacks.text_comparison.samples import Gathering, Sample, sample_of
from sonosco_like.data.audio import load_audio
from sonosco_like.errors import DataError, UsageError
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.metrics import Judged
from sonosco_like.records import Batch, Utterance
from sonosco_like.serialization import serializable, state

logger = logging.getLogger(__name__)

ONLY_SET = "val"  # the validation set of a trainer that has only one


@serializable
class ComparesTexts(AbstractCallback, ABC):
    """Follows what is heard in the same few utterances of each validation set, from validation to validation.

    They are those of `ids`, or else `samples` of them, chosen by `seed`; once chosen they stay the same, also when the
    run is resumed. `audio` and `pictures` say whether their recordings, features and alignments are shown too.
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
        self._gathering = Gathering(0, 0, None)
        self._loader: Any = None

    @abstractmethod
    def texts(self, moment: Moment, judged: Judged, rows: list[int]) -> Sequence[str]:
        """What is compared with the references of these rows of a batch."""

    @abstractmethod
    def compare(self, samples: list[Sample], set_name: str, context: Any) -> None:
        """Log the samples of a validation that is over."""

    def on_validation_start(self, moment: Moment) -> None:
        """Begin to gather."""
        self._set = moment.args.get("name") or ONLY_SET
        self._loader = moment.args.get("loader")
        chosen = self.chosen.get(self._set, self.ids or None)
        self._gathering = Gathering(self.samples, self.seed, chosen)

    def on_prediction_end(self, moment: Moment) -> None:
        """Keep what is wanted of a batch of the validation under way; other predictions are not this callback's."""
        if self._set is None or not is_of_utterances(moment.result):
            return
        rows = self._gathering.wanted(moment.result.batch.ids)
        if rows:
            symbols = moment.context.vocabulary.symbols
            for row, text in zip(rows, self.texts(moment, moment.result, rows), strict=True):
                self._gathering.keep(sample_of(moment.result, row, text, symbols))

    def on_validation_end(self, moment: Moment) -> None:
        """Log, and remember which samples these are."""
        name, self._set = self._set, None
        if name is None or moment.error is not None:
            return
        samples = self._gathering.samples()
        if name not in self.chosen and samples:
            self._warn_of_missing(name, samples)
            self.chosen = {**self.chosen, name: [sample.id for sample in samples]}
        self.compare(samples, name, moment.context)
        self._loader, self._gathering = None, Gathering(0, 0, None)

    def recordings(self, names: list[str]) -> dict[str, Audio]:
        """The recordings of utterances, as far as the loader of this validation has a manifest that knows them."""
        dataset = getattr(self._loader, "dataset", None)
        rate = getattr(getattr(dataset, "features", None), "sample_rate", None)
        utterances = getattr(dataset, "utterances", None)
        if not names or rate is None or utterances is None:
            return {}
        wanted = set(names)
        found = islice((utterance for utterance in utterances if utterance.id in wanted), len(wanted))
        recordings = {utterance.id: _recording(utterance, rate) for utterance in found}
        return {name: audio for name, audio in recordings.items() if audio is not None}

    def _warn_of_missing(self, name: str, samples: list[Sample]) -> None:
        missing = set(self.ids) - {sample.id for sample in samples}
        if missing:
            listed = ", ".join(sorted(missing)[:5])
            logger.warning("%s: not in the validation set %s: %s.", type(self).__name__, name, listed)


def is_of_utterances(judged: Any) -> bool:
    """Whether a batch has utterances with names; data of other kinds are none of our business."""
    return isinstance(judged, Judged) and isinstance(judged.batch, Batch) and bool(judged.batch.ids)


def _recording(utterance: Utterance, rate: int) -> Audio | None:
    try:
        samples_N = load_audio(utterance.audio_filepath, rate, utterance.offset, utterance.duration)
    except DataError as error:
        logger.warning("The recording of a sample cannot be shown: %s", error)
        return None
    return Audio(samples_N, rate) if len(samples_N) else None

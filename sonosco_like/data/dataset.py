"""The dataset: reads, augments and labels all utterances of a batch in one call.

The way of an utterance: row -> samples -> waveform augmentations -> features -> normalization -> feature augmentations
-> batch. Which utterances make a batch was decided before, from the manifest alone (`sampling`).
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sonosco_like.data.audio import load_audio
from sonosco_like.data.augment import FeatureAugmentation, WaveformAugmentation, utterance_random
from sonosco_like.data.collate import Example, collate
from sonosco_like.data.features import FeatureExtractor, LogMel
from sonosco_like.data.manifest import Manifest
from sonosco_like.data.normalization import GlobalNormalization, Normalization, UtteranceNormalization
from sonosco_like.data.part import ManifestPart
from sonosco_like.data.text import Alphabet, TextCleaner, Tokenizer
from sonosco_like.errors import DataError, SonoscoError, UsageError
from sonosco_like.records import Batch, Utterance
from sonosco_like.serialization import serializable

_MOST_LISTED = 20
_FIT_UTTERANCES = 5000  # hours of audio: more would hardly change the mean and variance of a feature
TORN_SECONDS, TORN_SHARE = 0.1, 0.02  # rounded durations and encoder delays stay below
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A batch, or None if none of its utterances could be used, and an account of what was left out.

    ```
    skipped  utterances that cannot be used, id to reason
    dropped  characters that cleaning removed, with their counts
    lacking  characters without label, with their counts
    ```
    """

    batch: Batch | None
    skipped: dict[str, str]
    dropped: Counter[str]
    lacking: Counter[str]

    def pin_memory(self) -> Fetched:
        """The same in page-locked memory; the name is the one `DataLoader(pin_memory=True)` calls."""
        return replace(self, batch=self.batch.pin_memory()) if self.batch is not None else self


@serializable
class AudioDataset:
    """The utterances of a manifest as batches of features and labels.

    An utterance cannot be used if its recording is missing, broken, without samples, shorter than the manifest says or
    silent (no sample beyond `silence`), if its length is not within `min_duration` and `max_duration`, or if its text
    has a character without label. `on_bad: error` stops and names its row, `on_bad: skip` lists it and goes on.

    With `part` the dataset is one part of the manifest, such as `{keep: val, by: speaker}`.
    """

    manifest: Path
    features: FeatureExtractor = field(default_factory=LogMel)
    normalization: Normalization | None = field(default_factory=UtteranceNormalization)
    cleaner: TextCleaner | None = field(default_factory=TextCleaner)
    tokenizer: Tokenizer = field(default_factory=Alphabet)
    waveform_augmentations: list[WaveformAugmentation] = field(default_factory=list)
    feature_augmentations: list[FeatureAugmentation] = field(default_factory=list)
    min_duration: float = 0.0
    max_duration: float | None = None
    silence: float = 1e-4
    on_bad: Literal["error", "skip"] = "error"
    part: ManifestPart | None = None

    def __post_init__(self) -> None:
        if self.max_duration is not None and not 0 <= self.min_duration <= self.max_duration:
            raise UsageError(
                f"`max_duration` must not be less than `min_duration`, got {self.max_duration} and {self.min_duration}."
            )
        wanted = ("encode", "decode", "size", "lacking")
        lacking = [name for name in wanted if inspect.getattr_static(self.tokenizer, name, None) is None]
        if lacking:
            raise UsageError(
                f"`tokenizer` must be a Tokenizer: {type(self.tokenizer).__name__} has no {' and no '.join(lacking)}. "
                f"Let it inherit from sonosco_like.data.Tokenizer."
            )

    @cached_property
    def utterances(self) -> Manifest:
        """The rows of the manifest, read when they are first needed."""
        return Manifest.read(self.manifest)

    @cached_property
    def excluded(self) -> dict[str, str]:
        """Utterances whose length is not within the limits, id to reason."""
        outside = np.flatnonzero(~self._is_within_limits)
        excluded = {self.utterances[index].id: self._outside(index) for index in outside.tolist()}
        if excluded and self.on_bad == "error":
            listed = "\n".join(f"  {reason}" for reason in list(excluded.values())[:_MOST_LISTED])
            raise DataError(
                f"{len(excluded)} utterances are not within the dataset's limits. Remove them from the manifest, "
                f"change `min_duration` or `max_duration`, or set `on_bad: skip` to go on without them:\n{listed}"
            )
        return excluded

    @cached_property
    def usable(self) -> NDArray[np.int64]:
        """Indices of the utterances that the sampler may choose from."""
        return self.of_this_part(self.within_limits())

    def use_utterances(self, utterances: Manifest) -> None:
        """Go on with these rows instead of those of the manifest."""
        if utterances is not self.utterances:
            self._forget("excluded", "usable", "durations", "_is_within_limits")
            self.utterances = utterances

    def use_rows(self, usable: NDArray[np.int64]) -> None:
        """Have the sampler choose from the utterances at these indices only."""
        if not np.array_equal(usable, vars(self).get("usable", ())):
            self._forget("durations")
            self.usable = np.asarray(usable, dtype=np.int64)

    def _forget(self, *names: str) -> None:
        for name in names:
            vars(self).pop(name, None)

    def within_limits(self) -> NDArray[np.int64]:
        """Indices of the utterances whose length is within the limits."""
        if self.excluded:
            logger.warning("%s: %d utterances left out for their length.", self.manifest, len(self.excluded))
        within = np.flatnonzero(self._is_within_limits)
        if len(within) == 0:
            raise DataError(f"No utterance of {self.manifest} is within `min_duration` and `max_duration`.")
        return within

    def of_this_part(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the indices whose utterances belong to the dataset's part of the manifest."""
        if self.part is None:
            return indices
        found = np.intersect1d(indices, self.part.rows_of(list(self.utterances)))
        if len(found) == 0:
            raise DataError(
                f"No utterance of {self.manifest} that is within the limits is in its part {self.part.keep!r}."
            )
        return found

    @cached_property
    def durations(self) -> NDArray[np.float64]:
        """Seconds of the utterances at `usable`."""
        return self.utterances.durations[self.usable]

    def batch(self, indices: Sequence[int] | NDArray[Any], seed: int = 0, epoch: int = 0) -> Batch | None:
        """The utterances at these indices of the manifest as a batch, or None if none of them can be used."""
        return self.fetch(indices, seed, epoch).batch

    def fetch(self, indices: Sequence[int] | NDArray[Any], seed: int, epoch: int) -> Fetched:
        """`batch`, with an account of what was left out."""
        dropped, lacking = self._counts()
        readings: list[_Reading] = []
        skipped: dict[str, str] = {}
        for index in map(int, indices):
            try:
                readings.append(self._read(index, seed, epoch))
            except Exception as error:
                if not isinstance(error, DataError):
                    raise self._failed(error, f"{self._row(index)} (utterance {self.utterances[index].id})") from error
                reason = f"{self._row(index)}: {error}"
                if self.on_bad == "error":
                    raise DataError(f"{reason} Repair or remove it, or set the dataset's `on_bad: skip`.") from None
                skipped[self.utterances[index].id] = reason
        try:
            examples = self._examples(readings)
        except Exception as error:
            if isinstance(error, SonoscoError):
                raise
            ids = ", ".join(reading.utterance.id for reading in readings)
            raise self._failed(error, f"{self.manifest}, a batch of the utterances {ids}") from error
        all_dropped, all_lacking = self._counts()
        return Fetched(collate(examples) if examples else None, skipped, all_dropped - dropped, all_lacking - lacking)

    def _examples(self, readings: list[_Reading]) -> list[Example]:
        features = self.features([reading.samples_N for reading in readings])
        return [self._finish(reading, features_TF) for reading, features_TF in zip(readings, features, strict=True)]

    @staticmethod
    def _failed(error: Exception, where: str) -> DataError:
        """An exception of some part of the dataset in words; its traceback is a note, which a worker can hand over."""
        found = DataError(
            f"{where}: {type(error).__name__}: {str(error).rstrip('.')}. A part of the dataset raised it."
        )
        found.add_note("".join(traceback.format_exception(error)))
        return found

    def text_report(self) -> str:
        """What cleaning drops and what has no label, over all texts of the manifest; opens no audio."""
        cleaner = replace(self.cleaner) if self.cleaner else None
        tokenizer = replace(self.tokenizer, missing="drop")
        empty = sum(not tokenizer.encode(cleaner(row.text) if cleaner else row.text) for row in self.utterances)
        parts = [cleaner.report()] if cleaner else []
        parts += [tokenizer.report()]
        parts += [f"{empty} of {len(self.utterances)} utterances have no label at all."] if empty else []
        return " ".join(parts)

    def prepare(self) -> None:
        """Read the manifest, and gather the statistics of a global normalization that has none yet."""
        usable = self.usable
        if not isinstance(self.normalization, GlobalNormalization) or self.normalization.frames:
            return
        count = min(len(usable), _FIT_UTTERANCES)
        some = usable[np.arange(count) * len(usable) // count]
        logger.info("Gathering mean and variance of the features from %d utterances of %s.", len(some), self.manifest)
        self.normalization.fit(self._plain_features(some))

    def _plain_features(self, indices: NDArray[np.int64]) -> Iterator[Tensor]:
        for index in indices.tolist():
            try:
                yield self.features([self._samples(self.utterances[index])])[0]
            except DataError as error:
                if self.on_bad == "error":
                    raise DataError(f"{self._row(index)}: {error}") from None

    def _read(self, index: int, seed: int, epoch: int) -> _Reading:
        utterance = self.utterances[index]
        random = utterance_random(seed, epoch, utterance.id)
        text = self.cleaner(utterance.text) if self.cleaner else utterance.text
        labels = self.tokenizer.encode(text)
        samples_N = self._samples(utterance)
        for augmentation in self.waveform_augmentations:
            samples_N = augmentation(samples_N, self.features.sample_rate, random)
        return _Reading(utterance, text, labels, samples_N, random)

    def _samples(self, utterance: Utterance) -> Tensor:
        rate = self.features.sample_rate
        samples_N = load_audio(utterance.audio_filepath, rate, utterance.offset, utterance.duration)
        name, seconds = utterance.audio_filepath, len(samples_N) / rate
        if len(samples_N) == 0:
            raise DataError(f"{name} has no samples there.")
        if utterance.duration - seconds > max(TORN_SECONDS, TORN_SHARE * utterance.duration):
            raise DataError(f"{name} ends after {seconds:.2f} s, but should have {utterance.duration:.2f} s.")
        if float(samples_N.abs().max()) <= self.silence:
            raise DataError(f"{name} is silent: no sample is beyond {self.silence:g}.")
        return samples_N

    def _finish(self, reading: _Reading, features_TF: Tensor) -> Example:
        if self.normalization is not None:
            features_TF = self.normalization(features_TF)
        for augmentation in self.feature_augmentations:
            features_TF = augmentation(features_TF, reading.random)
        utterance = reading.utterance
        return Example(utterance.id, reading.text, utterance.duration, features_TF, reading.labels)

    @cached_property
    def _is_within_limits(self) -> NDArray[np.bool_]:
        durations = self.utterances.durations
        limit = np.inf if self.max_duration is None else self.max_duration
        return (self.min_duration <= durations) & (durations <= limit)

    def _outside(self, index: int) -> str:
        duration = self.utterances.durations[index]
        if duration < self.min_duration:
            return f"{self._row(index)}: {duration:.2f} s is less than `min_duration` ({self.min_duration:g} s)"
        return f"{self._row(index)}: {duration:.2f} s is more than `max_duration` ({self.max_duration:g} s)"

    def _row(self, index: int) -> str:
        return f"{self.manifest}, row {self.utterances.row(index)}"

    def _counts(self) -> tuple[Counter[str], Counter[str]]:
        dropped = self.cleaner.dropped.counts if self.cleaner else Counter[str]()
        return dropped.copy(), self.tokenizer.lacking.counts.copy()


@dataclass(frozen=True, slots=True)
class _Reading:
    """An utterance that was read, with the randomness that is its own."""

    utterance: Utterance
    text: str
    labels: list[int]
    samples_N: Tensor
    random: np.random.Generator

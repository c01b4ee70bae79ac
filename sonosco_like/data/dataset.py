"""The dataset: reads, augments and labels all utterances of a batch in one call.

An utterance goes through: row -> samples -> waveform augmentations -> features -> normalization -> feature
augmentations -> batch. Which utterances make a batch was decided before, from the manifest alone (`sampling`).
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
import torch
from numpy.typing import NDArray
from torch import Tensor

from sonosco_like.data.audio import load_audio
from sonosco_like.data.augment import FeatureAugmentation, WaveformAugmentation, utterance_random
from sonosco_like.data.features import FeatureExtractor, LogMel
from sonosco_like.data.manifest import Manifest
from sonosco_like.data.mixing import Mixture, WeightedManifest, check_mixture
from sonosco_like.data.normalization import GlobalNormalization, Normalization, UtteranceNormalization
from sonosco_like.data.pretrained_features import Waveform, WhisperLogMel
from sonosco_like.data.text import Alphabet, TextCleaner, Tokenizer
from sonosco_like.data.tools.split import ManifestPart
from sonosco_like.data.workers import one_thread
from sonosco_like.errors import DataError, SonoscoError, UsageError, as_sentence, message_of
from sonosco_like.records import BLANK, Batch, Utterance
from sonosco_like.serialization import serializable


@dataclass(frozen=True, slots=True)
class Example:
    """One utterance on its way into a batch."""

    id: str
    text: str
    duration: float
    features_TF: Tensor
    labels: list[int]


def collate(examples: Sequence[Example]) -> Batch:
    """Pad features with zeros and labels with BLANK to the longest of the batch."""
    feature_lengths = [len(example.features_TF) for example in examples]
    label_lengths = [len(example.labels) for example in examples]
    size = examples[0].features_TF.shape[1]
    features_BTF = torch.zeros(len(examples), max(feature_lengths), size)
    labels_BU = torch.full((len(examples), max(label_lengths)), BLANK, dtype=torch.int64)
    for row, example in enumerate(examples):
        features_BTF[row, : feature_lengths[row]] = example.features_TF
        labels_BU[row, : label_lengths[row]] = torch.tensor(example.labels, dtype=torch.int64)
    return Batch(
        features_BTF=features_BTF,
        feature_lengths_B=torch.tensor(feature_lengths),
        labels_BU=labels_BU,
        label_lengths_B=torch.tensor(label_lengths),
        ids=[example.id for example in examples],
        texts=[example.text for example in examples],
        durations=[example.duration for example in examples],
    )


_MOST_LISTED = 20
_FIT_UTTERANCES = 5000  # hours of audio: more would hardly change the mean and variance of a feature
TORN_SECONDS, TORN_SHARE = 0.1, 0.02  # rounded durations and encoder delays stay below
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """A batch, or None if none of its utterances could be used, and a list of what was left out.

    ```
    skipped         utterances that cannot be used, id to reason
    dropped_counts  characters that cleaning removed, with their counts
    missing_counts  characters without label, with their counts
    ```
    """

    batch: Batch | None
    skipped: dict[str, str]
    dropped_counts: Counter[str]
    missing_counts: Counter[str]

    def pin_memory(self) -> LoadedBatch:
        """The same in page-locked memory; `DataLoader(pin_memory=True)` calls the method of this name."""
        return replace(self, batch=self.batch.pin_memory()) if self.batch is not None else self


@serializable
class AudioDataset:
    """The utterances of a manifest as batches of features and labels.

    An utterance cannot be used if its recording is missing, broken, without samples, shorter than in the manifest or
    silent (no sample above `silence`), if its length is not within `min_duration` and `max_duration`, or if its text
    has a character without label. `on_bad: error` stops and names its row, `on_bad: skip` lists the row and continues.

    `manifest` is a file, or a list of files whose utterances are mixed, perhaps with weights, such as
    `[{manifest: a.jsonl, weight: 3}, {manifest: b.jsonl, weight: 1}]`. With `part` the dataset is one part of its rows,
    such as `{keep: val, by: speaker}`.
    """

    manifest: Path | list[Path | WeightedManifest]
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
        if isinstance(self.manifest, list):
            check_mixture(self._weighted)
        if self.max_duration is not None and not 0 <= self.min_duration <= self.max_duration:
            raise UsageError(
                f"`max_duration` must not be less than `min_duration`, got {self.max_duration} and {self.min_duration}."
            )
        wanted = ("encode", "decode", "size", "missing_counts")
        missing = [name for name in wanted if inspect.getattr_static(self.tokenizer, name, None) is None]
        if missing:
            raise UsageError(
                f"`tokenizer` must be a Tokenizer: {type(self.tokenizer).__name__} has no {' and no '.join(missing)}. "
                f"Let it inherit from sonosco_like.data.Tokenizer."
            )
        self._check_pretrained_features()

    def _check_pretrained_features(self) -> None:
        """Refuse changes to features whose values an encoder was trained with elsewhere."""
        name = type(self.features).__name__
        if isinstance(self.features, (Waveform, WhisperLogMel)) and self.normalization is not None:
            own = " It can do it itself: `normalize: true`." if isinstance(self.features, Waveform) else ""
            raise UsageError(
                f"The values of {name} are those that a pretrained encoder expects, and "
                f"{type(self.normalization).__name__} would change them. Set `normalization: null` in the dataset.{own}"
            )
        if isinstance(self.features, Waveform) and self.feature_augmentations:
            raise UsageError(
                f"`feature_augmentations` change spectrograms, and {name} gives samples. Leave them out: a "
                "Wav2Vec2Encoder masks its own frames (`time_mask_share`), and `waveform_augmentations` change samples."
            )

    @property
    def manifests(self) -> list[Path]:
        """The path of the manifest, or of each manifest of a mixture."""
        return [each.manifest for each in self._weighted]

    @property
    def _weighted(self) -> list[WeightedManifest]:
        given = self.manifest if isinstance(self.manifest, list) else [self.manifest]
        return [each if isinstance(each, WeightedManifest) else WeightedManifest(manifest=each) for each in given]

    @property
    def name(self) -> str:
        """The paths of the manifests, for messages."""
        return ", ".join(map(str, self.manifests))

    @cached_property
    def utterances(self) -> Manifest:
        """The rows of the manifests, read when they are first needed."""
        return Manifest.read_all(self.manifests)

    @cached_property
    def mixture(self) -> Mixture | None:
        """What draws the utterances of an epoch from `usable`; None if each of them is in every epoch once."""
        if all(each.weight is None for each in self._weighted):
            return None
        return Mixture(self.utterances.sources[self.usable], self._weighted)

    @cached_property
    def out_of_limits(self) -> dict[str, str]:
        """Utterances whose length is not within the limits, id to reason."""
        outside = np.flatnonzero(~self._is_within_limits)
        out_of_limits = {self.utterances[index].id: self._limit_message(index) for index in outside.tolist()}
        if out_of_limits and self.on_bad == "error":
            listed = "\n".join(f"  {reason}" for reason in list(out_of_limits.values())[:_MOST_LISTED])
            raise DataError(
                f"{len(out_of_limits)} utterances are not within the dataset's limits. Remove them from the manifest, "
                f"change `min_duration` or `max_duration`, or set `on_bad: skip` to continue without them:\n{listed}"
            )
        return out_of_limits

    @cached_property
    def usable(self) -> NDArray[np.int64]:
        """Indices of the utterances that the sampler may choose from."""
        return self.select_part(self.within_limits())

    def use_utterances(self, utterances: Manifest) -> None:
        """Continue with these rows instead of those of the manifest."""
        if utterances is not self.utterances:
            self._clear_cache("excluded", "usable", "durations", "mixture", "_is_within_limits")
            self.utterances = utterances

    def use_rows(self, usable: NDArray[np.int64]) -> None:
        """Let the sampler choose from the utterances at these indices only."""
        if not np.array_equal(usable, vars(self).get("usable", ())):
            self._clear_cache("durations", "mixture")
            self.usable = np.asarray(usable, dtype=np.int64)

    def _clear_cache(self, *names: str) -> None:
        for name in names:
            vars(self).pop(name, None)

    def within_limits(self) -> NDArray[np.int64]:
        """Indices of the utterances whose length is within the limits."""
        if self.out_of_limits:
            logger.warning("%s: %d utterances left out for their length.", self.name, len(self.out_of_limits))
        within = np.flatnonzero(self._is_within_limits)
        if len(within) == 0:
            raise DataError(f"No utterance of {self.name} is within `min_duration` and `max_duration`.")
        return within

    def select_part(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices whose utterances belong to the dataset's part of the manifest."""
        if self.part is None:
            return indices
        found = np.intersect1d(indices, self.part.rows_of(list(self.utterances)))
        if len(found) == 0:
            raise DataError(f"No utterance of {self.name} that is within the limits is in its part {self.part.keep!r}.")
        return found

    @cached_property
    def durations(self) -> NDArray[np.float64]:
        """Seconds of the utterances at `usable`."""
        return self.utterances.durations[self.usable]

    def batch(self, indices: Sequence[int] | NDArray[Any], seed: int = 0, epoch: int = 0) -> Batch | None:
        """The utterances at these indices of the manifest as a batch, or None if none of them can be used."""
        return self.load_batch(indices, seed, epoch).batch

    def load_batch(
        self, indices: Sequence[int] | NDArray[Any], seed: int, epoch: int | NDArray[np.int64]
    ) -> LoadedBatch:
        """The same as `batch`, with a list of what was left out; `epoch` may be another number for each utterance."""
        dropped, missing = self._counts()
        loaded: list[LoadedUtterance] = []
        skipped: dict[str, str] = {}
        for index, number in zip(map(int, indices), np.broadcast_to(epoch, len(indices)).tolist(), strict=True):
            try:
                loaded.append(self._load(index, seed, number))
            except Exception as error:
                if not isinstance(error, DataError):
                    raise self._as_data_error(
                        error, f"{self._place(index)} (utterance {self.utterances[index].id})"
                    ) from error
                reason = f"{self._place(index)}: {error}"
                if self.on_bad == "error":
                    raise DataError(f"{reason} Repair or remove it, or set the dataset's `on_bad: skip`.") from None
                skipped[self.utterances[index].id] = reason
        try:
            examples = self._examples(loaded)
        except Exception as error:
            if isinstance(error, SonoscoError):
                raise
            ids = ", ".join(each.utterance.id for each in loaded)
            raise self._as_data_error(error, f"{self.name}, a batch of the utterances {ids}") from error
        all_dropped, all_missing = self._counts()
        return LoadedBatch(
            collate(examples) if examples else None, skipped, all_dropped - dropped, all_missing - missing
        )

    def _examples(self, loaded: list[LoadedUtterance]) -> list[Example]:
        features = self.features([each.samples_N for each in loaded])
        return [self._make_example(each, features_TF) for each, features_TF in zip(loaded, features, strict=True)]

    @staticmethod
    def _as_data_error(error: Exception, where: str) -> DataError:
        """The `DataError` for an exception of a part of the dataset; its note holds the traceback."""
        failed = DataError(f"{where}: {as_sentence(message_of(error))} A part of the dataset raised it.")
        failed.add_note("".join(traceback.format_exception(error)))
        return failed

    def text_report(self) -> str:
        """Sentences about what cleaning drops and what has no label, in all texts of the manifest; opens no audio."""
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
        logger.info("Gathering mean and variance of the features from %d utterances of %s.", len(some), self.name)
        with one_thread():  # as in the loader, so that the bits are the same with any number of threads
            self.normalization.fit(self._plain_features(some))

    def _plain_features(self, indices: NDArray[np.int64]) -> Iterator[Tensor]:
        for index in indices.tolist():
            try:
                yield self.features([self._samples(self.utterances[index])])[0]
            except DataError as error:
                if self.on_bad == "error":
                    raise DataError(f"{self._place(index)}: {error}") from None

    def _load(self, index: int, seed: int, epoch: int) -> LoadedUtterance:
        utterance = self.utterances[index]
        random = utterance_random(seed, epoch, utterance.id)
        text = self.cleaner(utterance.text) if self.cleaner else utterance.text
        labels = self.tokenizer.encode(text)
        samples_N = self._samples(utterance)
        for augmentation in self.waveform_augmentations:
            samples_N = augmentation(samples_N, self.features.sample_rate, random)
        return LoadedUtterance(utterance, text, labels, samples_N, random)

    def _samples(self, utterance: Utterance) -> Tensor:
        rate = self.features.sample_rate
        samples_N = load_audio(utterance.audio_filepath, rate, utterance.offset, utterance.duration)
        name, seconds = utterance.audio_filepath, len(samples_N) / rate
        if len(samples_N) == 0:
            raise DataError(f"{name} has no samples there.")
        if utterance.duration - seconds > max(TORN_SECONDS, TORN_SHARE * utterance.duration):
            raise DataError(f"{name} ends after {seconds:.2f} s, but should have {utterance.duration:.2f} s.")
        if float(samples_N.abs().max()) <= self.silence:
            raise DataError(f"{name} is silent: no sample is above {self.silence:g}.")
        return samples_N

    def _make_example(self, loaded: LoadedUtterance, features_TF: Tensor) -> Example:
        if self.normalization is not None:
            features_TF = self.normalization(features_TF)
        for augmentation in self.feature_augmentations:
            features_TF = augmentation(features_TF, loaded.random)
        utterance = loaded.utterance
        return Example(utterance.id, loaded.text, utterance.duration, features_TF, loaded.labels)

    @cached_property
    def _is_within_limits(self) -> NDArray[np.bool_]:
        durations = self.utterances.durations
        limit = np.inf if self.max_duration is None else self.max_duration
        return (self.min_duration <= durations) & (durations <= limit)

    def _limit_message(self, index: int) -> str:
        duration = self.utterances.durations[index]
        if duration < self.min_duration:
            return f"{self._place(index)}: {duration:.2f} s is less than `min_duration` ({self.min_duration:g} s)"
        return f"{self._place(index)}: {duration:.2f} s is more than `max_duration` ({self.max_duration:g} s)"

    def _place(self, index: int) -> str:
        return self.utterances.place(index)

    def _counts(self) -> tuple[Counter[str], Counter[str]]:
        dropped = self.cleaner.dropped_counts if self.cleaner else Counter[str]()
        return dropped.copy(), self.tokenizer.missing_counts.copy()


@dataclass(frozen=True, slots=True)
class LoadedUtterance:
    """An utterance that was read, with its own random generator."""

    utterance: Utterance
    text: str
    labels: list[int]
    samples_N: Tensor
    random: np.random.Generator

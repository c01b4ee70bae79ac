"""The evaluator makes an evaluation of a recogniser and a corpus, during training or after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sonosco_like.data import AudioDataLoader, AudioDataset, BucketSampler, Manifest
from sonosco_like.data.text import TextCleaner
from sonosco_like.data.tools.predictions import PREDICTION, PredictedUtterance
from sonosco_like.errors import UsageError
from sonosco_like.evaluation.evaluation import TRAINING, Evaluation, Normalizer, find_normalizer, training_normalizer
from sonosco_like.evaluation.results import Result
from sonosco_like.inference import Transcriber
from sonosco_like.records import Utterance

Advance = Callable[[float], None]
_NEVER_SILENT = -1.0


@dataclass(frozen=True)
class ModelEvaluator:
    """Evaluates recognisers: word, character and sentence error rates with bootstrap intervals.

        evaluation = ModelEvaluator().evaluate(load_transcriber("runs/digits"), "test.jsonl")
        evaluation = ModelEvaluator().evaluate(trainer, trainer.val_data_loader)

    A recogniser is anything with `predict(loader)`: a transcriber, a trained recogniser, a trainer. The number of
    resamples is `bootstraps`, drawn with `seed`; with 0 there are no intervals. Intervals hold the true rate with a
    probability of `level`. Batches have up to `batch_seconds` of padded audio, which `workers` processes read.
    `normalizer`, by its name, brings references and hypotheses into one form before they are compared.
    """

    bootstraps: int = 1000
    seed: int = 0
    level: float = 0.95
    batch_seconds: float = 120.0
    workers: int = 0
    normalizer: str | Normalizer = TRAINING

    def evaluate(self, recogniser: Any, data: Any, progress: Any = None) -> Evaluation:
        """Evaluate a recogniser on a manifest, given by its path, or on the batches of a data loader.

        Every row of a manifest is recognised or named in `unusable`: also silence, and texts with characters that the
        recogniser cannot write. A normalizer other than that of the training gets the texts as the manifest has them;
        if there is only a loader, as the loader gives them.
        """
        normalizer = self._found_normalizer()
        if isinstance(recogniser, Transcriber):
            recogniser = recogniser.recogniser
        loader = self.loader(recogniser, data) if isinstance(data, (str, Path)) else data
        if not hasattr(recogniser, "predict"):
            raise UsageError(f"A {type(recogniser).__name__} cannot be evaluated: it has no `predict(loader)`.")
        rows = _rows(loader)
        opened: AbstractContextManager[Advance] = (
            progress("evaluating", len(rows) or None, "utterances") if progress else nullcontext(lambda amount: None)
        )
        started = time.monotonic()
        results, predictions = [], {}
        with opened as advance:
            for each in recogniser.predict(loader):
                row = rows.get(each.id) or Utterance(each.id, "", 0.0, each.reference)
                reference = row.text if normalizer.rule else each.reference
                texts = normalizer(reference), normalizer(each.hypothesis)
                results.append(Result.of(each.id, *texts, row.duration, row.speaker))
                predictions[each.id] = " ".join(each.hypothesis.split())
                advance(1)
        elapsed = time.monotonic() - started
        order = {name: number for number, name in enumerate(rows)}
        results.sort(key=lambda result: order.get(result.id, 0))
        unusable = dict(getattr(loader, "skipped", {}))
        return self._evaluation(results, unusable, normalizer, elapsed, predictions)

    def evaluate_texts(self, rows: Sequence[PredictedUtterance], column: str = PREDICTION) -> Evaluation:
        """Evaluate the texts that another recogniser gave, in one column of a manifest that `read_predictions` read.

        A row without a text in this column is named in `unusable`.
        """
        normalizer = self._found_normalizer()
        if normalizer.rule is None:
            normalizer = training_normalizer(TextCleaner())
        results, unusable = [], {}
        for row in rows:
            if column in row.predictions:
                texts = normalizer(row.reference), normalizer(row.predictions[column])
                results.append(Result.of(row.id, *texts, row.duration, row.speaker))
            else:
                unusable[row.id] = f"{row.id} has no `{column}`."
        return self._evaluation(results, unusable, normalizer)

    def _found_normalizer(self) -> Normalizer:
        return find_normalizer(self.normalizer) if isinstance(self.normalizer, str) else self.normalizer

    def _evaluation(
        self,
        results: Sequence[Result],
        unusable: Mapping[str, str],
        normalizer: Normalizer,
        elapsed: float = 0.0,
        predictions: Mapping[str, str] | None = None,
    ) -> Evaluation:
        settings = (self.bootstraps, self.seed, self.level, normalizer)
        return Evaluation(results, unusable, elapsed, *settings, predictions or {})

    def loader(self, recogniser: Any, manifest: str | Path) -> AudioDataLoader:
        """The utterances of a manifest, prepared as for this recogniser, in batches of similar length."""
        parts = recogniser if hasattr(recogniser, "features") else recogniser.train_data_loader.dataset
        dataset = AudioDataset(
            manifest=Path(manifest),
            features=parts.features,
            normalization=parts.normalization,
            cleaner=parts.cleaner,
            tokenizer=replace(parts.tokenizer, missing="drop"),
            silence=_NEVER_SILENT,
            on_bad="skip",
        )
        longest = float(np.max(dataset.durations, initial=0.0))
        sampler = BucketSampler(batch_seconds=max(self.batch_seconds, longest), shuffle=False)
        return AudioDataLoader(dataset=dataset, sampler=sampler, num_workers=self.workers)


def _rows(loader: Any) -> dict[str, Utterance]:
    """Each utterance by its id, in the order of the manifest; empty without a manifest."""
    utterances: Iterable[Any] = getattr(getattr(loader, "dataset", None), "utterances", ())
    return {utterance.id: utterance for utterance in utterances} if isinstance(utterances, Manifest) else {}

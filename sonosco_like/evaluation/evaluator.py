"""The evaluator makes an evaluation of a recogniser and a corpus, during training or after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sonosco_like.data import AudioDataLoader, AudioDataset, BucketSampler, Manifest
from sonosco_like.errors import UsageError
from sonosco_like.evaluation.evaluation import Evaluation
from sonosco_like.evaluation.results import Result
from sonosco_like.inference import Transcriber

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
    """

    bootstraps: int = 1000
    seed: int = 0
    level: float = 0.95
    batch_seconds: float = 120.0
    workers: int = 0

    def evaluate(self, recogniser: Any, data: Any, progress: Any = None) -> Evaluation:
        """Evaluate a recogniser on a manifest, given by its path, or on the batches of a data loader.

        Every row of a manifest is recognised or named in `unusable`: also silence, and texts with characters that the
        recogniser cannot write.
        """
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
        results = []
        with opened as advance:
            for each in recogniser.predict(loader):
                duration, speaker = rows.get(each.id, (0.0, None))
                results.append(Result.of(each.id, each.reference, each.hypothesis, duration, speaker))
                advance(1)
        elapsed = time.monotonic() - started
        order = {name: number for number, name in enumerate(rows)}
        results.sort(key=lambda result: order.get(result.id, 0))
        unusable = dict(getattr(loader, "skipped", {}))
        return Evaluation(results, unusable, elapsed, self.bootstraps, self.seed, self.level)

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


def _rows(loader: Any) -> dict[str, tuple[float, str | None]]:
    """Duration and speaker of each utterance by id, in the order of the manifest; empty without a manifest."""
    utterances: Iterable[Any] = getattr(getattr(loader, "dataset", None), "utterances", ())
    known = utterances if isinstance(utterances, Manifest) else ()
    return {utterance.id: (utterance.duration, utterance.speaker) for utterance in known}

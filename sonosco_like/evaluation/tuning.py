"""The weight of a language model and the bonus per word that give the fewest errors on a validation set."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from sonosco_like.decoding import AttentionBeamDecoder, CTCBeamDecoder
from sonosco_like.errors import UsageError
from sonosco_like.evaluation.evaluation import Evaluation
from sonosco_like.evaluation.evaluator import ModelEvaluator
from sonosco_like.inference import TrainedRecogniser
from sonosco_like.progress import Progress, no_progress
from sonosco_like.records import Batch, Prediction
from sonosco_like.serialization import dumps

BeamDecoder = CTCBeamDecoder | AttentionBeamDecoder
Weights = tuple[float, float]  # of the language model, and the bonus per word
_NONE: Weights = (0.0, 0.0)
_STEPS = ((0.5, 1.0), (0.25, 0.5), (0.125, 0.25))
_MOVES = ((1, 0), (0, 1), (1, 1), (-1, 0), (0, -1), (-1, -1))  # a higher weight often needs a higher bonus
_SHOWN = 8


@dataclass(frozen=True)
class Tuning:
    """All that was tried, as evaluations without intervals; the decoder has the best weights."""

    decoder: BeamDecoder
    trials: Mapping[Weights, Evaluation]

    @property
    def best(self) -> Weights:
        """The weight and the bonus with the fewest errors."""
        return min(self.trials, key=lambda weights: _errors(self.trials[weights]))

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The best trials, and at the end the one without a language model: weight, bonus, WER, CER."""
        ranked = sorted(self.trials, key=lambda weights: _errors(self.trials[weights]))
        for weights in [*[each for each in ranked if each != _NONE][:_SHOWN], _NONE]:
            trial = self.trials[weights]
            names = ("none", "") if weights == _NONE else tuple(f"{value:g}" for value in weights)
            yield (*names, f"{trial.wer:.2%}", f"{trial.cer:.2%}")

    @property
    def helps(self) -> bool:
        """Whether any weights give fewer errors than the recogniser alone."""
        return self.best != _NONE

    def options(self) -> str:
        """The options of `sonosco evaluate` and `sonosco transcribe` for the best weights."""
        weight, bonus = self.best
        model = self.decoder.words.language_model
        path = shlex.quote(str(model.path if model else ""))
        return f"--beam {self.decoder.beam_size} --lm {path} --lm-weight {weight:g} --word-bonus {bonus:g}"

    def override(self) -> str:
        """The decoder with the best weights as an override of a config."""
        fields = _changed(yaml.safe_load(dumps(self.decoder)), yaml.safe_load(dumps(type(self.decoder)())))
        value = yaml.safe_dump(fields, default_flow_style=True, sort_keys=False, width=math.inf).strip()
        return f"--set {shlex.quote(f'trainer.decoder={value}')}"

    def as_dicts(self) -> list[dict[str, Any]]:
        """Plain data for JSON, in the order in which the weights were tried."""
        return [
            {"lm_weight": weight, "word_bonus": bonus, **trial.rates()}
            for (weight, bonus), trial in self.trials.items()
        ]


def tune_language_model(
    recogniser: TrainedRecogniser, evaluator: ModelEvaluator, manifest: Path, progress: Progress = no_progress
) -> Tuning:
    """Search the weights, beginning with those of the recogniser's decoder, in ever smaller steps.

    The model transcribes the manifest once; only the beam search is repeated.
    """
    decoder = recogniser.decoder
    if not isinstance(decoder, BeamDecoder) or decoder.words.language_model is None:
        raise UsageError("There is no language model to tune: name one with --lm FILE. `sonosco data lm` learns one.")
    evaluator = replace(evaluator, bootstraps=0)
    loader = evaluator.loader(recogniser, manifest)
    outputs = _Outputs(recogniser, loader, progress)
    trials: dict[Weights, Evaluation] = {}

    def attempt(weights: Weights) -> tuple[int, int]:
        if weights not in trials:
            outputs.decoder = _with_weights(decoder, weights)
            trials[weights] = evaluator.evaluate(outputs, loader)
            advance(1)
        return _errors(trials[weights])

    with progress("tuning the language model", None, "trials") as advance:
        attempt(_NONE)
        best = decoder.words.weight, decoder.words.word_bonus
        for steps in _STEPS:
            while (better := min([best, *_neighbours(best, steps)], key=attempt)) != best:
                best = better
    tuned = Tuning(decoder, trials)
    return replace(tuned, decoder=_with_weights(decoder, tuned.best))


def _changed(fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The class, the weights, and the fields that are not as by default."""
    found = {}
    for name, value in fields.items():
        default = defaults.get(name)
        if value != default or name in ("class", "weight", "word_bonus"):
            both = isinstance(value, dict) and isinstance(default, dict)
            found[name] = _changed(value, default or {}) if both else value
    return found


def _errors(evaluation: Evaluation) -> tuple[int, int]:
    return evaluation.words.errors, evaluation.characters.errors


def _with_weights(decoder: BeamDecoder, weights: Weights) -> BeamDecoder:
    weight, bonus = weights
    return replace(decoder, words=replace(decoder.words, weight=weight, word_bonus=bonus))


def _neighbours(weights: Weights, steps: Weights) -> list[Weights]:
    """The weights one step away; a negative weight would prefer improbable words."""
    found = [(weights[0] + steps[0] * move[0], weights[1] + steps[1] * move[1]) for move in _MOVES]
    return [each for each in found if each[0] >= 0]


class _Outputs:
    """A recogniser that keeps the outputs of its model, so that they can be decoded several times."""

    def __init__(self, recogniser: TrainedRecogniser, loader: Iterable[Batch], progress: Progress) -> None:
        self.recogniser, self.decoder = recogniser, recogniser.decoder
        self._kept = []
        with progress("transcribing", None, "utterances") as advance:
            for batch in loader:
                self._kept.append((batch.ids, batch.texts, recogniser.encode(batch)))
                advance(len(batch))

    def predict(self, loader: Any) -> Iterator[Prediction]:
        """The prediction for each utterance; the loader is not read again."""
        own = self.recogniser
        for ids, texts, output in self._kept:
            found = self.decoder.decode(output, own.tokenizer, model=own.model, frame_seconds=own.frame_seconds)
            yield from map(Prediction, ids, texts, [hypotheses[0].text for hypotheses in found])

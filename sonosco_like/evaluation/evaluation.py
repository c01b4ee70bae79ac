"""The outcome of an evaluation: every result, the rates of the corpus, and their confidence intervals.

Before they are compared, a normalizer brings reference and hypothesis into one form. A rate depends on it, so it is
comparable only with rates of the same normalizer in the same version.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from sonosco_like.data.text import TextCleaner
from sonosco_like.edits import ErrorCounts
from sonosco_like.errors import MissingPackageError, UsageError, as_sentence, did_you_mean, message_of
from sonosco_like.evaluation.bootstrap import Comparison, Interval, compare, interval_of, resampled_rates, sums_by
from sonosco_like.evaluation.results import Confusions, Group, Result, by_length, by_speaker, total
from sonosco_like.records import UNKNOWN_TEXT

_PACKAGE = "whisper-normalizer"
_CLASSES = {"basic": "BasicTextNormalizer", "english": "EnglishTextNormalizer"}
_AROUND_UNKNOWN = re.compile(rf"(\s*{UNKNOWN_TEXT}\s*)")


@dataclass(frozen=True)
class Normalizer:
    """A rule for texts, with the name and the version under which results are reported.

    Without a `rule`, references are as the data loader gives them, cleaned as in training.
    """

    name: str
    version: str
    rule: Callable[[str], str] | None = None

    def __call__(self, text: str) -> str:
        """The text in the form of this normalizer."""
        return text if self.rule is None else self.rule(text)

    def __str__(self) -> str:
        return f"{self.name} ({self.version})"

    def as_dict(self) -> dict[str, str]:
        """Name and version as plain data for JSON."""
        return {"name": self.name, "version": self.version}


_OWN = "sonosco_like 1"  # count it up when the form of `training` or `none` changes
TRAINING = Normalizer("training", _OWN)
NONE = Normalizer("none", _OWN, str)
NAMES = (TRAINING.name, NONE.name, *_CLASSES)


def find_normalizer(name: str) -> Normalizer:
    """The normalizer with a name.

    `training` is the form of the training; `none` leaves texts as they are; `basic` and `english` are those of Whisper.
    """
    if name in _CLASSES:
        return _of_whisper(name)
    for known in (TRAINING, NONE):
        if name == known.name:
            return known
    hint = did_you_mean(name, NAMES)
    raise UsageError(f"There is no normalizer {name!r}{hint or '.'} Choose one of {', '.join(NAMES)}.")


def training_normalizer(cleaner: TextCleaner | None) -> Normalizer:
    """The normalizer `training` for texts from elsewhere: it cleans them as the texts of a training were cleaned."""

    def clean(text: str) -> str:  # a cleaner would remove the mark of unknown characters as punctuation
        parts = _AROUND_UNKNOWN.split(text)
        return "".join(part if cleaner is None or UNKNOWN_TEXT in part else cleaner(part) for part in parts)

    return Normalizer(TRAINING.name, TRAINING.version, clean)


def _of_whisper(name: str) -> Normalizer:
    try:
        module = importlib.import_module(f"whisper_normalizer.{name}")
    except ModuleNotFoundError:
        raise MissingPackageError(
            f"The normalizer {name!r} needs the package {_PACKAGE}. "
            f"Install it with: pip install 'sonosco_like[normalizers]'"
        ) from None
    rule = getattr(module, _CLASSES[name])()
    return Normalizer(name, f"{_PACKAGE} {importlib.metadata.version(_PACKAGE)}", lambda text: rule(text).strip())


_MOST_CONFUSIONS = 50


@dataclass(frozen=True)
class Evaluation:
    """The results of a recogniser on a corpus. Rates are fractions: all errors over all words of the corpus.

    `unusable` holds the reasons of utterances that could not be read, by id; they are not in the rates. `elapsed` is
    the time in seconds, from reading the audio to the text. The texts of the results are in the form of `normalizer`;
    `predictions` are the hypotheses as the recogniser wrote them, by id.
    """

    results: Sequence[Result]
    unusable: Mapping[str, str] = field(default_factory=dict)
    elapsed: float = 0.0
    bootstraps: int = 1000
    seed: int = 0
    level: float = 0.95
    normalizer: Normalizer = TRAINING
    predictions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.results:
            reason = next(iter(self.unusable.values()), "the manifest has no rows.")
            raise UsageError(
                f"There is nothing to evaluate: none of {len(self.unusable)} utterances is usable: {reason}"
            )
        if self.bootstraps < 0 or not 0 < self.level < 1:
            raise UsageError(
                f"`bootstraps` must not be negative, and `level` must lie between 0 and 1; "
                f"got {self.bootstraps} and {self.level}."
            )

    @cached_property
    def words(self) -> ErrorCounts:
        """Word errors of the corpus."""
        return total(result.words for result in self.results)

    @cached_property
    def characters(self) -> ErrorCounts:
        """Character errors of the corpus."""
        return total(result.characters for result in self.results)

    @property
    def wer(self) -> float:
        """The word error rate."""
        return self.words.rate

    @property
    def cer(self) -> float:
        """The character error rate."""
        return self.characters.rate

    @property
    def ser(self) -> float:
        """The share of utterances with any error."""
        return sum(result.is_wrong for result in self.results) / len(self.results)

    @property
    def seconds(self) -> float:
        """Seconds of audio."""
        return sum(result.duration for result in self.results)

    @property
    def real_time_factor(self) -> float | None:
        """Seconds of work per second of audio."""
        return self.elapsed / self.seconds if self.elapsed and self.seconds else None

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """Confidence intervals of `wer`, `cer` and `ser`, and of `wer_by_speaker` if all speakers are known."""
        if not self.bootstraps:
            return {}
        words = [result.words.errors for result in self.results], [r.words.reference_length for r in self.results]
        columns: dict[str, tuple[Sequence[int], Sequence[int]]] = {
            "wer": words,
            "cer": (
                [result.characters.errors for result in self.results],
                [result.characters.reference_length for result in self.results],
            ),
            "ser": ([int(result.is_wrong) for result in self.results], [1] * len(self.results)),
        }
        speakers = [result.speaker for result in self.results if result.speaker is not None]
        if len(set(speakers)) > 1 and len(speakers) == len(self.results):
            columns["wer_by_speaker"] = sums_by(speakers, words[0]).tolist(), sums_by(speakers, words[1]).tolist()
        return {
            name: interval_of(resampled_rates([errors], lengths, self.bootstraps, self.seed)[0], self.level)
            for name, (errors, lengths) in columns.items()
        }

    @cached_property
    def by_length(self) -> list[Group]:
        """Errors by the length of utterances."""
        return by_length(self.results)

    @cached_property
    def by_speaker(self) -> list[Group]:
        """Errors by speaker, the highest rate first."""
        return by_speaker(self.results)

    @cached_property
    def confusions(self) -> Confusions:
        """How often each word was recognised as another."""
        return Confusions.of(self.results)

    def against(self, other: Sequence[Result], name: str) -> Comparison:
        """A comparison with the results of another recogniser on the same utterances."""
        return compare(self.results, other, name, self.bootstraps or 1000, self.seed, self.level)

    def measures(self) -> dict[str, float]:
        """Rates and the bounds of their intervals by name, for `trainer.log` and so for TensorBoard."""
        found = {"wer": self.wer, "cer": self.cer, "ser": self.ser}
        for name, interval in self.intervals.items():
            found |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
        return found

    HEADS: ClassVar = ("utterances", "S", "D", "I", "CER", "WER", "interval")

    def row(self) -> list[str]:
        """The numbers as cells of a table, under `HEADS`."""
        words, interval = self.words, self.intervals.get("wer")
        counts = (len(self.results), words.substitutions, words.deletions, words.insertions)
        span = f"{interval.low:.2%} to {interval.high:.2%}" if interval else "-"
        return [*(f"{count:,}" for count in counts), f"{self.cer:.2%}", f"{self.wer:.2%}", span]

    def rates(self) -> dict[str, Any]:
        """Rates, counts and intervals as plain data."""
        intervals = {f"{name}_interval": [each.low, each.high] for name, each in self.intervals.items()}
        return {
            "wer": self.wer,
            "cer": self.cer,
            "ser": self.ser,
            "substitutions": self.words.substitutions,
            "deletions": self.words.deletions,
            "insertions": self.words.insertions,
            "reference_words": self.words.reference_length,
            "reference_characters": self.characters.reference_length,
            "utterances": len(self.results),
            **{"wer_interval": None, **intervals},
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the top-level keys are a contract."""
        return {
            **self.rates(),
            "normalizer": self.normalizer.as_dict(),
            "bootstrap": {
                "resamples": self.bootstraps,
                "seed": self.seed,
                **{name: asdict(each) for name, each in self.intervals.items()},
            },
            "audio_seconds": self.seconds,
            "real_time_factor": self.real_time_factor,
            "unusable": dict(self.unusable),
            "by_length": [_group(group) for group in self.by_length],
            "by_speaker": [_group(group) for group in self.by_speaker],
            "confusions": _confusions(self.confusions),
            "results": [_result(result) for result in self.results],
        }


def results_of(content: Mapping[str, Any], normalizer: Normalizer = TRAINING) -> list[Result]:
    """The results in the content of a JSON file that was written from `as_dict` with this normalizer."""
    try:
        used = Normalizer(**content.get("normalizer", TRAINING.as_dict()))
        if (used.name, used.version) != (normalizer.name, normalizer.version):
            raise UsageError(
                f"Its texts are in the form of the normalizer {used}, and those here of {normalizer}. "
                f"Use one for both, such as --normalizer {used.name}."
            )
        names = ("id", "reference", "hypothesis", "duration", "speaker")
        return [Result.of(**{name: row[name] for name in names}) for row in content["results"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"This is not the JSON of an evaluation: {as_sentence(message_of(error))}") from None


def _result(result: Result) -> dict[str, Any]:
    return {
        "id": result.id,
        "speaker": result.speaker,
        "duration": result.duration,
        "reference": result.reference,
        "hypothesis": result.hypothesis,
        "substitutions": result.words.substitutions,
        "deletions": result.words.deletions,
        "insertions": result.words.insertions,
        "reference_words": result.words.reference_length,
    }


def _group(group: Group) -> dict[str, Any]:
    counts = asdict(group.words)
    counts["reference_words"] = counts.pop("reference_length")
    return {
        "name": group.name,
        "utterances": group.utterances,
        "seconds": group.seconds,
        "wer": group.words.rate,
        **counts,
    }


def _confusions(confusions: Confusions) -> dict[str, list[list[Any]]]:
    return {
        "substitutions": [[*pair, count] for pair, count in confusions.substitutions.most_common(_MOST_CONFUSIONS)],
        "deletions": [[word, count] for word, count in confusions.deletions.most_common(_MOST_CONFUSIONS)],
        "insertions": [[word, count] for word, count in confusions.insertions.most_common(_MOST_CONFUSIONS)],
    }

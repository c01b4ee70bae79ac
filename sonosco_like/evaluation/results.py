"""The results of single utterances, and where their errors are: by length, by speaker, by word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add

import numpy as np

from sonosco_like.edits import (
    Alignment,
    ErrorCounts,
    align_words,
    characters_of,
    count_character_errors,
    count_word_errors,
)

_EDGES = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0)  # seconds


@dataclass(frozen=True, slots=True)
class Result:
    """An utterance with its reference, its hypothesis and the errors between the two."""

    id: str
    reference: str
    hypothesis: str
    words: ErrorCounts
    characters: ErrorCounts
    duration: float = 0.0
    speaker: str | None = None

    @classmethod
    def of(cls, id: str, reference: str, hypothesis: str, duration: float = 0.0, speaker: str | None = None) -> Result:
        """A result from its texts."""
        words = count_word_errors([reference], [hypothesis])
        characters = count_character_errors([reference], [hypothesis])
        return cls(id, reference, hypothesis, words, characters, duration, speaker)

    @property
    def is_wrong(self) -> bool:
        """Whether there is any error."""
        return characters_of(self.reference) != characters_of(self.hypothesis)

    @property
    def in_words(self) -> str:
        """The id and the word errors as text."""
        return f"{self.id}: {self.words.in_words()}"

    @property
    def alignment(self) -> Alignment:
        """The aligned words."""
        return align_words(self.reference, self.hypothesis)


def total(counts: Iterable[ErrorCounts]) -> ErrorCounts:
    """The sum of counts."""
    return reduce(add, counts, ErrorCounts())


def worst(results: Sequence[Result], most: int) -> list[Result]:
    """The utterances with the most errors; of equal numbers, those with the higher rate first."""
    wrong = [result for result in results if result.words.errors]
    return sorted(wrong, key=lambda result: (-result.words.errors, -result.words.rate, result.id))[:most]


@dataclass(frozen=True, slots=True)
class Group:
    """Utterances that have something in common."""

    name: str
    utterances: int
    seconds: float
    words: ErrorCounts

    def row(self) -> list[str]:
        """The numbers as cells of a table: utterances, minutes, words, S, D, I, WER."""
        counts = self.words
        numbers = (self.utterances, counts.reference_length, counts.substitutions, counts.deletions, counts.insertions)
        utterances, *others = (f"{number:,}" for number in numbers)
        return [utterances, f"{self.seconds / 60:.1f}", *others, f"{counts.rate:.2%}"]


def by_length(results: Sequence[Result]) -> list[Group]:
    """Groups of similar length, the shortest first, without empty groups."""
    places = np.searchsorted(_EDGES, [result.duration for result in results], side="right") - 1
    groups = []
    for place in sorted(set(places.tolist())):
        low = f"{_EDGES[place]:g}"
        name = f"{low} to {_EDGES[place + 1]:g} s" if place + 1 < len(_EDGES) else f"{low} s and more"
        groups.append(_group(name, (result for result, at in zip(results, places, strict=True) if at == place)))
    return groups


def by_speaker(results: Sequence[Result]) -> list[Group]:
    """A group for each known speaker, the highest error rate first."""
    speakers: dict[str, list[Result]] = {}
    for result in results:
        if result.speaker is not None:
            speakers.setdefault(result.speaker, []).append(result)
    groups = [_group(name, members) for name, members in speakers.items()]
    return sorted(groups, key=lambda group: (-group.words.rate, group.name))


def _group(name: str, members: Iterable[Result]) -> Group:
    members = list(members)
    seconds = sum(member.duration for member in members)
    return Group(name, len(members), seconds, total(member.words for member in members))


@dataclass(slots=True)
class WordStatistics:
    """The counts of one word in references and hypotheses, right and wrong."""

    correct: int = 0
    substituted: int = 0
    deleted: int = 0
    as_substitute: int = 0
    inserted: int = 0

    @property
    def in_references(self) -> int:
        """How often the word is in the references."""
        return self.correct + self.substituted + self.deleted

    @property
    def in_hypotheses(self) -> int:
        """How often the word is in the hypotheses."""
        return self.correct + self.as_substitute + self.inserted

    @property
    def errors(self) -> int:
        """All errors with the word, in references and hypotheses."""
        return self.substituted + self.deleted + self.as_substitute + self.inserted


@dataclass(frozen=True, slots=True)
class Confusions:
    """How often each word was recognised as another, deleted, or inserted."""

    substitutions: Counter[tuple[str, str]] = field(default_factory=Counter)
    deletions: Counter[str] = field(default_factory=Counter)
    insertions: Counter[str] = field(default_factory=Counter)
    words: dict[str, WordStatistics] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Iterable[Result]) -> Confusions:
        """Count over all utterances."""
        found = cls()
        for result in results:
            for edit in result.alignment.edits:
                found._add(edit.reference, edit.hypothesis)
        return found

    def _add(self, reference: str | None, hypothesis: str | None) -> None:
        if reference is not None and hypothesis is not None:
            if reference == hypothesis:
                self._word(reference).correct += 1
                return
            self.substitutions[reference, hypothesis] += 1
            self._word(reference).substituted += 1
            self._word(hypothesis).as_substitute += 1
        elif reference is not None:
            self.deletions[reference] += 1
            self._word(reference).deleted += 1
        elif hypothesis is not None:
            self.insertions[hypothesis] += 1
            self._word(hypothesis).inserted += 1

    def _word(self, word: str) -> WordStatistics:
        return self.words.setdefault(word, WordStatistics())

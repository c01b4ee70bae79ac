"""Where the errors are: in short or long utterances, with which speakers, in which words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from sonosco_like.evaluation.results import Result, total
from sonosco_like.metrics import ErrorCounts

_EDGES = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0)  # seconds


@dataclass(frozen=True, slots=True)
class Group:
    """Utterances that have something in common."""

    name: str
    utterances: int
    seconds: float
    words: ErrorCounts


def by_length(results: Sequence[Result]) -> list[Group]:
    """Groups of similar length, the shortest first; those without utterances are left out."""
    places = np.searchsorted(_EDGES, [result.duration for result in results], side="right") - 1
    groups = []
    for place in sorted(set(places.tolist())):
        low = f"{_EDGES[place]:g}"
        name = f"{low} to {_EDGES[place + 1]:g} s" if place + 1 < len(_EDGES) else f"{low} s and more"
        groups.append(_group(name, (result for result, at in zip(results, places, strict=True) if at == place)))
    return groups


def by_speaker(results: Sequence[Result]) -> list[Group]:
    """A group for each speaker that is known, the hardest to understand first."""
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
    """What became of a word: how often it was said, heard where it was said, and heard where it was not."""

    correct: int = 0
    substituted: int = 0
    deleted: int = 0
    taken_for: int = 0
    inserted: int = 0

    @property
    def said(self) -> int:
        """How often it is in the references."""
        return self.correct + self.substituted + self.deleted

    @property
    def heard(self) -> int:
        """How often it is in the hypotheses."""
        return self.correct + self.taken_for + self.inserted

    @property
    def errors(self) -> int:
        """Everything that went wrong with it, on either side."""
        return self.substituted + self.deleted + self.taken_for + self.inserted


@dataclass(frozen=True, slots=True)
class Confusions:
    """Which word was heard instead of which, which were missed, and which were made up."""

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

    def _add(self, said: str | None, heard: str | None) -> None:
        if said is not None and heard is not None:
            if said == heard:
                self._word(said).correct += 1
                return
            self.substitutions[said, heard] += 1
            self._word(said).substituted += 1
            self._word(heard).taken_for += 1
        elif said is not None:
            self.deletions[said] += 1
            self._word(said).deleted += 1
        elif heard is not None:
            self.insertions[heard] += 1
            self._word(heard).inserted += 1

    def _word(self, word: str) -> WordStatistics:
        return self.words.setdefault(word, WordStatistics())

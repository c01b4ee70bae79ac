"""What was said and what was heard, utterance by utterance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from sonosco_like.metrics import (
    Alignment,
    ErrorCounts,
    align,
    characters_of,
    count_character_errors,
    count_word_errors,
    words_of,
)


@dataclass(frozen=True, slots=True)
class Result:
    """An utterance, what was said and heard in it, and the errors between the two."""

    id: str
    reference: str
    hypothesis: str
    words: ErrorCounts
    characters: ErrorCounts
    duration: float = 0.0
    speaker: str | None = None

    @classmethod
    def of(cls, id: str, reference: str, hypothesis: str, duration: float = 0.0, speaker: str | None = None) -> Result:
        """A result whose errors are counted here."""
        words = count_word_errors([reference], [hypothesis])
        characters = count_character_errors([reference], [hypothesis])
        return cls(id, reference, hypothesis, words, characters, duration, speaker)

    @property
    def is_wrong(self) -> bool:
        """Whether there is any error."""
        return characters_of(self.reference) != characters_of(self.hypothesis)

    @property
    def in_words(self) -> str:
        """Which utterance it is, and how bad."""
        errors, words = self.words.errors, self.words.reference_length
        return (
            f"{self.id}: {errors} {'error' if errors == 1 else 'errors'} in {words} {'word' if words == 1 else 'words'}"
        )

    @property
    def alignment(self) -> Alignment:
        """The words side by side."""
        return align(words_of(self.reference), words_of(self.hypothesis))


def total(counts: Iterable[ErrorCounts]) -> ErrorCounts:
    """Counts of a whole corpus."""
    return reduce(add, counts, ErrorCounts())


def worst(results: Sequence[Result], most: int) -> list[Result]:
    """Utterances with the most errors; of equal ones those with the higher rate first."""
    wrong = [result for result in results if result.words.errors]
    return sorted(wrong, key=lambda result: (-result.words.errors, -result.words.rate, result.id))[:most]

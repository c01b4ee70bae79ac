"""What words add to the score of a beam search: the language model, a bonus per word, hot words.

A word counts when it is complete: at the gap behind it, at the beginning of the next, or at the end of the utterance.
Only hot words count earlier: every letter of the beginning of a hot word earns its share of the bonus, which is taken
back when another word comes out. So in the end each hot word has earned its bonus exactly once, and beams with the
beginning of a hot word survive until it is complete. With a language model that says that other words than its own are
impossible, letters that begin none of them are impossible at once, since a beam would be full of them at the gap.

Shape suffix: V labels.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sonosco_like.decoding.decoder import word_part_of
from sonosco_like.decoding.language_model import NGramLanguageModel, WordModel
from sonosco_like.errors import UsageError
from sonosco_like.serialization import serializable

_NOT_HOT = "\0"
_IMPOSSIBLE = -1000.0  # finite, so that an utterance without any possible text has one too


@serializable
class WordScores:
    """How words are scored, in natural logarithms: `weight` times the language model, and bonuses per word."""

    language_model: NGramLanguageModel | None = None
    weight: float = 0.5
    word_bonus: float = 0.0
    hot_words: list[str] = field(default_factory=list)
    hot_word_bonus: float = 5.0

    def __post_init__(self) -> None:
        for word in self.hot_words:
            if len(word.split()) != 1:
                raise UsageError(f"A hot word is one word without spaces, got {word!r}. List its words one by one.")

    @property
    def most_per_word(self) -> float:
        """The most that one more word can add: a language model only subtracts."""
        return max(0.0, self.word_bonus) + max(0.0, self.hot_word_bonus if self.hot_words else 0.0)

    @property
    def are_scored(self) -> bool:
        """Whether words make any difference."""
        return self.language_model is not None or bool(self.word_bonus) or bool(self.hot_words)

    def scorer(self, symbols: Sequence[str]) -> WordScorer | None:
        """The scorer of prefixes of labels with these symbols; None if words make no difference."""
        return WordScorer(self, symbols) if self.are_scored else None


@dataclass(slots=True)
class WordState:
    """The state of a prefix: the language model's history of complete words, the letters of the unfinished word."""

    history: Any
    letters: str
    completion: tuple[float, Any] | None = field(default=None, repr=False)
    row_V: NDArray[np.float64] | None = field(default=None, repr=False)


class WordScorer:
    """Scores prefixes label by label; the scores of all next labels of a prefix are one row."""

    def __init__(self, settings: WordScores, symbols: Sequence[str]) -> None:
        self._settings = settings
        self._model: WordModel | None = settings.language_model.load() if settings.language_model else None
        self._parts = [word_part_of(symbol) for symbol in symbols]
        self._beginnings = np.flatnonzero([part.begins_word for part in self._parts])
        self._zeros_V = np.zeros(len(self._parts))
        self._hot = frozenset(settings.hot_words)
        self._shares = _earned_shares(settings.hot_words, settings.hot_word_bonus)
        self._hot_rows: dict[str, NDArray[np.float64]] = {}
        model = settings.language_model if settings.weight > 0 else None
        self._vocabulary = model.closed_vocabulary() if model is not None else None
        self._starts = _starts_of(self._vocabulary) if self._vocabulary is not None else frozenset()
        self._closed_rows: dict[str, NDArray[np.float64]] = {}

    def start(self) -> WordState:
        """The state before the first label."""
        return WordState(self._model.start() if self._model else None, "")

    def next_scores(self, state: WordState) -> NDArray[np.float64]:
        """What each label adds to the score of a prefix."""
        if state.row_V is None:
            row_V = self._zeros_V.copy()
            row_V[self._beginnings] = self._complete(state)[0]
            if self._vocabulary is not None:
                row_V += self._closed_row(state.letters)
            state.row_V = row_V + self._hot_row(state.letters) if self._hot else row_V
        return state.row_V

    def extend(self, state: WordState, label: int) -> WordState:
        """The state after one more label."""
        text, begins_word = self._parts[label]
        if begins_word:
            return WordState(self._complete(state)[1], text)
        return WordState(state.history, state.letters + text) if text else state

    def finish(self, state: WordState) -> float:
        """What the end of the utterance adds: the unfinished word, and the language model's end of sentence."""
        score, history = self._complete(state)
        if self._hot:
            score -= self._shares.get(state.letters, 0.0)
        if self._model is not None:
            score += self._settings.weight * self._model.finish(history)
        return score

    def _complete(self, state: WordState) -> tuple[float, Any]:
        """(what the unfinished word adds when it is complete, the history after it)."""
        if state.completion is None:
            score, history = 0.0, state.history
            if state.letters:
                score = self._settings.word_bonus
                score += self._settings.hot_word_bonus if state.letters in self._hot else 0.0
                if self._model is not None:
                    log_p, history = self._model.score(state.history, state.letters)
                    score += self._settings.weight * log_p
            state.completion = score, history
        return state.completion

    def _closed_row(self, letters: str) -> NDArray[np.float64]:
        """What is taken from each label that leads to no word of the vocabulary."""
        row_V = self._closed_rows.get(letters)
        if row_V is None:
            assert self._vocabulary is not None
            may_end = not letters or letters in self._vocabulary
            possible = [
                may_end and text in self._starts if begins else letters + text in self._starts
                for text, begins in self._parts
            ]
            row_V = self._closed_rows[letters] = np.where(possible, 0.0, _IMPOSSIBLE)
        return row_V

    def _hot_row(self, letters: str) -> NDArray[np.float64]:
        """How the earned share of a hot word's bonus changes with each label."""
        if letters and letters not in self._shares:
            letters = _NOT_HOT  # one row for all of these, whatever follows
        row_V = self._hot_rows.get(letters)
        if row_V is None:
            after = [text if begins else letters + text for text, begins in self._parts]
            shares = [self._shares.get(word, 0.0) for word in after]
            row_V = self._hot_rows[letters] = np.array(shares) - self._shares.get(letters, 0.0)
        return row_V


@functools.lru_cache(maxsize=4)
def _starts_of(words: frozenset[str]) -> frozenset[str]:
    """All beginnings of words, whole words and the empty one too; made once, since each batch has its own scorer."""
    return frozenset(word[:length] for word in words for length in range(len(word) + 1))


def _earned_shares(hot_words: Sequence[str], bonus: float) -> Mapping[str, float]:
    """The share of the bonus that each beginning of a hot word has earned; the largest if it begins several."""
    shares: dict[str, float] = {}
    for word in hot_words:
        for length in range(1, len(word) + 1):
            share = bonus * length / len(word)
            shares[word[:length]] = max(share, shares.get(word[:length], share))
    return shares

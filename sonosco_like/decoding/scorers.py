"""The scorers of the beam searches: the attention decoder, the CTC output, the words.

Each scorer of an attention beam search gives scores_NV for the next label of every row (END among them). `advance`
says which rows continue with which label, `keep` which rows remain when the search leaves out utterances.

A word counts when it is complete: at the gap behind it, at the beginning of the next, or at the end of the utterance.
Only hot words count earlier: every letter of the beginning of a hot word earns its share of the bonus, which is taken
back when another word comes out. So in the end each hot word has earned its bonus exactly once, and beams with the
beginning of a hot word survive until it is complete. With a language model that says that other words than its own are
impossible, letters that begin none of them are impossible at once, since a beam would be full of them at the gap.

Shape suffixes as in `records`; here also N rows of the search (the beams of all its utterances), C candidates for the
next label. S of a prefix has one place more at the front, before any frame.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sonosco_like.decoding.decoder import word_part_of
from sonosco_like.decoding.language_model import NGramLanguageModel, WordModel
from sonosco_like.errors import UsageError
from sonosco_like.models.recogniser import AttentionDecoder
from sonosco_like.records import BLANK, END, START, Output
from sonosco_like.serialization import serializable
from sonosco_like.tensors import length_mask

IMPOSSIBLE = -1e10  # a logarithm that can be calculated with, unlike -inf
_NOT_HOT = "\0"
_IMPOSSIBLE_LETTERS = -1000.0  # finite, so that an utterance without any possible text has one too


class AttentionScorer:
    """The attention decoder, one step at a time; keeps the attention of the last step."""

    def __init__(self, decoder: AttentionDecoder, output: Output, utterance_N: Tensor) -> None:
        self._decoder = decoder
        self._state = decoder.start(output.encoded_BSD, output.encoded_lengths_B).select(utterance_N)
        self._labels_N = torch.full_like(utterance_N, START)
        self.attention_NS = output.encoded_BSD.new_empty(0)

    def scores(self) -> Tensor:
        """log p_NV of the next label."""
        log_probs_NV, attention_NHS, self._state = self._decoder.step(self._labels_N, self._state)
        self.attention_NS = attention_NHS.float().mean(1)
        return log_probs_NV.float()

    def advance(self, rows_N: Tensor, labels_N: Tensor) -> None:
        """Continue with these rows, each with one more label."""
        self._state, self._labels_N = self._state.select(rows_N), labels_N

    def keep(self, rows_N: Tensor) -> None:
        """Drop the other rows."""
        self.advance(rows_N, self._labels_N[rows_N])


@dataclass(frozen=True)
class CTCPrefixes:
    """One prefix per row, with the log probabilities that the frames up to each one give exactly this prefix.

    ```
    last_N       the last label of the prefix
    by_label_NS  log p with the last frame in the last label; the first place is before any frame
    by_blank_NS  log p with the last frame in a blank
    score_N      log p that the utterance begins with the prefix
    ```
    """

    last_N: Tensor
    by_label_NS: Tensor
    by_blank_NS: Tensor
    score_N: Tensor

    def select(self, index_N: Tensor) -> CTCPrefixes:
        """The rows of `index_N`, in that order."""
        return CTCPrefixes(
            self.last_N[index_N], self.by_label_NS[index_N], self.by_blank_NS[index_N], self.score_N[index_N]
        )


class CTCPrefixScorer:
    """log p that an utterance begins with a prefix, under a CTC output: the sum over all continuations.

    (Watanabe et al. 2017.) The probabilities of a prefix follow from those of the prefix without its last label by a
    recursion over frames. The recursion is linear; divided by the running product of the emissions it is a running sum,
    and thus one `logcumsumexp`. Row n of a search belongs to utterance `utterance_N[n]`.
    """

    def __init__(self, log_probs_BSV: Tensor, lengths_B: Tensor, utterance_N: Tensor) -> None:
        wide = torch.float32 if log_probs_BSV.device.type == "mps" else torch.float64
        log_probs_BSV = log_probs_BSV.to(wide).clamp(min=IMPOSSIBLE)
        padding_BS = ~length_mask(lengths_B, log_probs_BSV.shape[1])
        log_probs_BSV = log_probs_BSV.masked_fill(padding_BS[:, :, None], IMPOSSIBLE)
        log_probs_BSV[..., BLANK].masked_fill_(padding_BS, 0.0)  # beyond the end, prefixes stay as they are
        self._log_probs_BSV = log_probs_BSV
        self._utterance_N = utterance_N

    def select(self, index_N: Tensor) -> CTCPrefixScorer:
        """The scorer of a search that continues with these rows, in that order."""
        selected = copy(self)
        selected._utterance_N = self._utterance_N[index_N]
        return selected

    def start(self) -> CTCPrefixes:
        """The empty prefix in every row."""
        blank_NS = self._log_probs_BSV[self._utterance_N, :, BLANK]
        by_blank_NS = torch.nn.functional.pad(blank_NS.cumsum(1), (1, 0))
        by_label_NS = torch.full_like(by_blank_NS, IMPOSSIBLE)
        last_N, score_N = torch.full_like(self._utterance_N, BLANK), torch.zeros_like(by_blank_NS[:, 0])
        return CTCPrefixes(last_N, by_label_NS, by_blank_NS, score_N)

    def extended_scores(self, prefixes: CTCPrefixes, labels_NC: Tensor) -> Tensor:
        """log p_NC that the utterance begins with the prefix and one more label."""
        return (self._before(prefixes, labels_NC) + self._emissions(labels_NC)).logsumexp(1)

    def final_scores(self, prefixes: CTCPrefixes) -> Tensor:
        """log p_N that the prefix is the whole utterance."""
        return torch.logaddexp(prefixes.by_label_NS[:, -1], prefixes.by_blank_NS[:, -1])

    def extend(self, prefixes: CTCPrefixes, labels_N: Tensor, score_N: Tensor) -> CTCPrefixes:
        """The prefixes with one more label each; their `score_N` come from `extended_scores`."""
        before_NS = self._before(prefixes, labels_N[:, None])[..., 0]
        by_label_NS = _accumulate(before_NS, self._emissions(labels_N[:, None])[..., 0])
        blank_NS = self._log_probs_BSV[self._utterance_N, :, BLANK]
        by_blank_NS = _accumulate(by_label_NS[:, :-1], blank_NS)
        return CTCPrefixes(labels_N, by_label_NS, by_blank_NS, score_N)

    def _before(self, prefixes: CTCPrefixes, labels_NC: Tensor) -> Tensor:
        """log p_NSC that the prefix is complete before a frame and the label may follow; a repeat needs a blank."""
        by_blank_NS = prefixes.by_blank_NS[:, :-1]
        either_NS = torch.logaddexp(by_blank_NS, prefixes.by_label_NS[:, :-1])
        is_repeat_NC = labels_NC == prefixes.last_N[:, None]
        return torch.where(is_repeat_NC[:, None], by_blank_NS[..., None], either_NS[..., None])

    def _emissions(self, labels_NC: Tensor) -> Tensor:
        frames_S = torch.arange(self._log_probs_BSV.shape[1], device=labels_NC.device)
        return self._log_probs_BSV[self._utterance_N[:, None, None], frames_S[:, None], labels_NC[:, None]]


def _accumulate(arriving_NS: Tensor, emission_NS: Tensor) -> Tensor:
    """p[t] = (p[t - 1] + arriving[t]) * emission[t] for all frames, in logarithms, with zero before the first frame."""
    product_NS = emission_NS.cumsum(1)
    accumulated_NS = product_NS + (arriving_NS - (product_NS - emission_NS)).logcumsumexp(1)
    return torch.nn.functional.pad(accumulated_NS, (1, 0), value=IMPOSSIBLE)


class CTCScorer:
    """How one more label changes the CTC probability of a prefix; computed for the most promising labels only."""

    def __init__(self, scorer: CTCPrefixScorer, most_candidates: int) -> None:
        self._scorer, self._most = scorer, most_candidates
        self._prefixes = scorer.start()
        self._extended_NV = torch.empty(0)

    def scores(self, promising_NV: Tensor) -> Tensor:
        """scores_NV; -inf for labels that are not among the most promising."""
        labels_NC = promising_NV.topk(min(self._most, promising_NV.shape[1])).indices
        extended_NV = promising_NV.new_full(promising_NV.shape, IMPOSSIBLE, dtype=self._prefixes.score_N.dtype)
        extended_NV.scatter_(1, labels_NC, self._scorer.extended_scores(self._prefixes, labels_NC))
        extended_NV[:, END] = self._scorer.final_scores(self._prefixes)
        self._extended_NV = extended_NV
        scores_NV = extended_NV - self._prefixes.score_N[:, None]
        return scores_NV.masked_fill(extended_NV < IMPOSSIBLE / 2, -torch.inf).float()

    def advance(self, rows_N: Tensor, labels_N: Tensor) -> None:
        """Continue with these rows, each with one more label."""
        score_N = self._extended_NV[rows_N, labels_N]
        self._prefixes = self._scorer.extend(self._prefixes.select(rows_N), labels_N, score_N)

    def keep(self, rows_N: Tensor) -> None:
        """Drop the other rows."""
        self._scorer, self._prefixes = self._scorer.select(rows_N), self._prefixes.select(rows_N)


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
            row_V = self._closed_rows[letters] = np.where(possible, 0.0, _IMPOSSIBLE_LETTERS)
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


class RowsWordScorer:
    """Language model, word bonus and hot words, for all rows of a search."""

    def __init__(self, scorer: WordScorer, rows: int) -> None:
        self._scorer = scorer
        self._states = [scorer.start()] * rows

    def scores(self, like_NV: Tensor) -> Tensor:
        """scores_NV with the type and device of `like_NV`."""
        rows_NV = np.stack([self._scorer.next_scores(state) for state in self._states])
        rows_NV[:, END] = [self._scorer.finish(state) for state in self._states]
        return torch.from_numpy(rows_NV).to(like_NV)

    def advance(self, rows_N: Tensor, labels_N: Tensor) -> None:
        """Continue with these rows, each with one more label."""
        pairs = zip(rows_N.tolist(), labels_N.tolist(), strict=True)
        self._states = [self._scorer.extend(self._states[row], label) for row, label in pairs]

    def keep(self, rows_N: Tensor) -> None:
        """Drop the other rows."""
        self._states = [self._states[row] for row in rows_N.tolist()]

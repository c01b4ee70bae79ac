"""CTC beam search: the most probable text over all alignments, with an optional language model and hot words.

The search is in numpy, for all utterances of a batch at once. A prefix is a sequence of labels. A beam holds pairs
(prefix, whether its last frame was blank), since a label may be repeated only after a blank. In each frame every pair
stays (by a blank, or by its last label once more) or is extended by a label; equal pairs are added up; the best
`beam_size` pairs of an utterance are kept. A beam that is wide enough for all prefixes thus finds the most probable
labels exactly, summed over all their alignments.

The search of flashlight-text gives the same paths, except for equal scores: there the result depends on addresses in
memory, here the first one is kept.

Shape suffixes: B utterances, S frames, V labels, N hypotheses, C candidates, K slots of a beam. A slot holds a prefix
with its two pairs, or nothing. A prefix keeps its slot as long as one of its pairs stays. Pairs are numbered by slot: k
if the pair ends in a blank, K + k if it ends in its label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sonosco_like.decoding.decoder import Decoder, Vocabulary, ctc_log_probs, ctc_spans, hypothesis_of, require_positive
from sonosco_like.decoding.scorers import WordScorer, WordScores, WordState
from sonosco_like.models.recogniser import SpeechModel
from sonosco_like.records import BLANK, Hypothesis, Output
from sonosco_like.serialization import serializable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_NO_PREFIX = 0  # the number in an empty slot, and of the parent of the empty prefix


@serializable(version=2)
class CTCBeamDecoder(Decoder):
    """Prefix beam search (Graves & Jaitly 2014, Hannun et al. 2014).

    `beam_size` counts pairs of a prefix and whether it ends in a blank, as flashlight-text does. Pairs further than
    `beam_threshold` (natural logarithm) below the best are dropped. `words` adds a language model, a bonus per word and
    hot words.
    """

    beam_size: int = 16
    beam_threshold: float = 50.0
    n_best: int = 1
    words: WordScores = field(default_factory=WordScores)

    @staticmethod
    def upgrade(version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """Version 1 had an `engine`; all engines gave the same result."""
        return {name: value for name, value in fields.items() if name != "engine"}

    def __post_init__(self) -> None:
        require_positive(beam_size=self.beam_size, beam_threshold=self.beam_threshold, n_best=self.n_best)

    def decode(
        self,
        output: Output,
        vocabulary: Vocabulary,
        *,
        model: SpeechModel | None = None,
        frame_seconds: float = 1.0,
    ) -> list[list[Hypothesis]]:
        """Up to `n_best` hypotheses of each utterance; the score is log p(text | audio) and what `words` adds."""
        log_probs_BSV = ctc_log_probs(output).cpu().numpy()
        lengths_B = output.encoded_lengths_B.cpu().numpy()
        scorer = self.words.scorer(vocabulary.symbols)
        found = prefix_beam_search(log_probs_BSV, lengths_B, self.beam_size, self.beam_threshold, self.n_best, scorer)
        decoded = []
        for paths, log_probs_SV, length in zip(found, log_probs_BSV, lengths_B.tolist(), strict=True):
            paths = paths or [_silence(length)]
            decoded.append(_hypotheses(paths, log_probs_SV[:length], vocabulary, frame_seconds))
        return decoded


def _hypotheses(
    paths: list[CTCPath], log_probs_SV: NDArray[np.float32], vocabulary: Vocabulary, frame_seconds: float
) -> list[Hypothesis]:
    paths_NS = np.stack([path.path_S for path in paths])
    log_probs_NS = np.take_along_axis(log_probs_SV, paths_NS.T, axis=1).T
    return [
        hypothesis_of(spans, path.score, vocabulary, frame_seconds)
        for spans, path in zip(ctc_spans(paths_NS, log_probs_NS), paths, strict=True)
    ]


def _silence(frames: int) -> CTCPath:
    """The empty text, for a model that gives no path any probability, as a diverged one does."""
    return CTCPath(-torch.inf, np.full(frames, BLANK))


class CTCPath(NamedTuple):
    """The best path of a label sequence, a label per frame, and the score of the sequence over all its paths."""

    score: float
    path_S: Ints


def prefix_beam_search(
    log_probs_BSV: NDArray[np.floating],
    lengths_B: NDArray[np.integer],
    beam_size: int,
    threshold: float = 50.0,
    n_best: int = 1,
    scorer: WordScorer | None = None,
) -> list[list[CTCPath]]:
    """The `n_best` most probable label sequences of each utterance, best first; none if no path has any probability."""
    longest_first_B = np.argsort(-lengths_B, kind="stable")
    utterances, labels = len(lengths_B), log_probs_BSV.shape[2]
    search = _Search(utterances, beam_size, labels, threshold, _Prefixes(utterances, labels, scorer))
    sorted_BSV = log_probs_BSV[longest_first_B]
    long_enough_S = (lengths_B[:, None] > np.arange(lengths_B.max(initial=0))).sum(axis=0)
    for frame, long_enough in enumerate(long_enough_S.tolist()):
        search.advance(sorted_BSV[:long_enough, frame].astype(np.float64))
    paths: list[list[CTCPath]] = [[]] * utterances
    for utterance, found in zip(longest_first_B.tolist(), search.best_paths(n_best), strict=True):
        length = lengths_B[utterance]
        paths[utterance] = [CTCPath(score, path_S[:length]) for score, path_S in found]
    return paths


class _Prefixes:
    """The numbers of all prefixes so far: a prefix that comes back into a beam has the same number again.

    The empty prefixes of the utterances have the first numbers. `slots` has the slot of each prefix, -1 for none.
    """

    def __init__(self, utterances: int, labels: int, scorer: WordScorer | None) -> None:
        self.scorer = scorer
        self._labels, self._count = labels, utterances + 1
        self.slots = np.full(1024 + utterances, -1)
        self.slots[1 : self._count] = 0
        self._children: dict[int, int] = {}  # by prefix * labels + label: numbers are free for the garbage collector
        self._words: list[WordState] = [scorer.start() for _ in range(self._count)] if scorer else []

    def extend(self, prefixes: Ints, labels: Ints) -> list[int]:
        """The numbers of prefixes with one more label each."""
        known, numbers = self._children, []
        for key in (prefixes * self._labels + labels).tolist():
            number = known.get(key)
            if number is None:
                number = known[key] = self._count
                self._count += 1
                if self.scorer:
                    prefix, label = divmod(key, self._labels)
                    self._words.append(self.scorer.extend(self._words[prefix], label))
            numbers.append(number)
        if self._count > len(self.slots):
            self.slots = np.concatenate([self.slots, np.full(self._count, -1)])
        return numbers

    def word_scores(self, prefixes: Iterable[int]) -> list[Floats]:
        """What each label adds to the score of each prefix by its words."""
        assert self.scorer is not None
        return [self.scorer.next_scores(self._words[prefix]) for prefix in prefixes]

    def final_scores(self, prefix_BK: Ints) -> Floats:
        """What the end of the utterance adds to the score of each prefix by its words."""
        scores_BK = np.zeros(prefix_BK.shape)
        if self.scorer:
            held = prefix_BK != _NO_PREFIX
            scores_BK[held] = [self.scorer.finish(self._words[prefix]) for prefix in prefix_BK[held].tolist()]
        return scores_BK


class _Beams(NamedTuple):
    """The beams of all utterances, the longest utterance first; changed in place, frame by frame.

    ```
    prefix_BK  number of the prefix in each slot
    parent_BK  number of the prefix without its last label
    last_BK    last label of the prefix
    blank_BK   log p that the prefix ends in a blank
    label_BK   log p that the prefix ends in its last label
    words_BKV  what each next label adds by its words
    row_B1     0, 1, ...
    slot_K     0, 1, ...
    ```
    """

    prefix_BK: Ints
    parent_BK: Ints
    last_BK: Ints
    blank_BK: Floats
    label_BK: Floats
    words_BKV: Floats | None
    row_B1: Ints
    slot_K: Ints

    @classmethod
    def at_start(cls, utterances: int, beam_size: int, labels: int, prefixes: _Prefixes) -> _Beams:
        shape = utterances, beam_size
        beams = cls(
            prefix_BK=np.full(shape, _NO_PREFIX),
            parent_BK=np.full(shape, _NO_PREFIX),
            last_BK=np.full(shape, BLANK),
            blank_BK=np.full(shape, -np.inf),
            label_BK=np.full(shape, -np.inf),
            words_BKV=np.zeros((*shape, labels)) if prefixes.scorer else None,
            row_B1=np.arange(utterances)[:, None],
            slot_K=np.arange(beam_size),
        )
        numbers = range(1, utterances + 1)
        beams.prefix_BK[:, 0], beams.blank_BK[:, 0] = numbers, 0.0
        if beams.words_BKV is not None:
            beams.words_BKV[:, 0] = prefixes.word_scores(numbers)
        return beams

    def first(self, utterances: int) -> _Beams:
        """A view of the beams of the first utterances."""
        if utterances == len(self.prefix_BK):
            return self
        return _Beams(
            self.prefix_BK[:utterances],
            self.parent_BK[:utterances],
            self.last_BK[:utterances],
            self.blank_BK[:utterances],
            self.label_BK[:utterances],
            None if self.words_BKV is None else self.words_BKV[:utterances],
            self.row_B1[:utterances],
            self.slot_K,
        )


class _Candidates:
    """The candidates of one frame: how each pair may stay or be extended, and the best pair from which it comes.

    `scores_BC` are the scores of all candidates: stay by a blank, stay by a label (K each), extensions (K * V).
    """

    def __init__(self, beams: _Beams, log_probs_BV: Floats, parent_slots_BK: Ints) -> None:
        self._beams, self._log_probs_BV = beams, log_probs_BV
        utterances, size = beams.blank_BK.shape
        everywhere = rows_B1, slots_K = beams.row_B1, beams.slot_K
        blank_BK, label_BK, last_BK = beams.blank_BK, beams.label_BK, beams.last_BK
        self._best_BK = np.maximum(blank_BK, label_BK)
        self.best_pair_BK = np.where(blank_BK >= label_BK, slots_K, slots_K + size)
        self.label_source_BK = np.empty_like(last_BK)
        self.label_source_BK[:] = slots_K + size

        self.scores_BC = np.empty((utterances, 2 * size + size * log_probs_BV.shape[1]))
        self.by_blank_BK, self.by_label_BK = self.scores_BC[:, :size], self.scores_BC[:, size : 2 * size]
        self.extended_BKV = self.scores_BC[:, 2 * size :].reshape(utterances, size, -1)
        total_BK = np.logaddexp(blank_BK, label_BK)
        np.add(total_BK, log_probs_BV[:, BLANK, None], out=self.by_blank_BK)
        np.add(label_BK, log_probs_BV[rows_B1, last_BK], out=self.by_label_BK)
        np.add(total_BK[..., None], log_probs_BV[:, None], out=self.extended_BKV)
        if beams.words_BKV is not None:
            self.extended_BKV += beams.words_BKV
        self.extended_BKV[(*everywhere, last_BK)] = blank_BK + self._gains(*everywhere, last_BK)
        self.extended_BKV[..., BLANK] = -np.inf
        self._merge_equal_prefixes(parent_slots_BK)

    def _gains(self, utterances: Ints, slots: Ints, labels: Ints) -> Floats:
        """What these extensions add to the score."""
        gain: Floats = self._log_probs_BV[utterances, labels]
        return gain if self._beams.words_BKV is None else gain + self._beams.words_BKV[utterances, slots, labels]

    def _merge_equal_prefixes(self, parent_slots_BK: Ints) -> None:
        """Add an extension that leads to a prefix of the beam to the score of that prefix."""
        here = (parent_slots_BK >= 0).nonzero()
        extension = here[0], parent_slots_BK[here], self._beams.last_BK[here]
        single, source = self.best_source(*extension)
        by_label = self.by_label_BK[here]
        self.label_source_BK[here] = np.where(single > by_label, source, self.label_source_BK[here])
        self.by_label_BK[here] = np.logaddexp(by_label, self.extended_BKV[extension])
        self.extended_BKV[extension] = -np.inf

    def best_source(self, utterances: Ints, slots: Ints, labels: Ints) -> tuple[Floats, Ints]:
        """Of the two pairs from which a slot can be extended by a label, the better one: (extended score, number)."""
        here = utterances, slots
        is_repeat = labels == self._beams.last_BK[here]
        score = np.where(is_repeat, self._beams.blank_BK[here], self._best_BK[here])
        return score + self._gains(utterances, slots, labels), np.where(is_repeat, slots, self.best_pair_BK[here])


class _Search:
    """The beams, and for every frame where they came from."""

    def __init__(self, utterances: int, beam_size: int, labels: int, threshold: float, prefixes: _Prefixes) -> None:
        self._size, self._threshold, self._prefixes = beam_size, threshold, prefixes
        self._beams = _Beams.at_start(utterances, beam_size, labels, prefixes)
        self._trace: list[tuple[Ints, Ints]] = []  # sources_B2K and labels_B2K of the pairs in each frame

    def advance(self, log_probs_BV: Floats) -> None:
        """Read one more frame of those utterances that are long enough, the first ones."""
        beams, size = self._beams.first(len(log_probs_BV)), self._size
        candidates = _Candidates(beams, log_probs_BV, self._prefixes.slots[beams.parent_BK])
        chosen_BC = _choose_best(candidates.scores_BC, size, self._threshold)
        by_blank_BK, by_label_BK = chosen_BC[:, :size], chosen_BC[:, size : 2 * size]
        is_free_BK = ~(by_blank_BK | by_label_BK)
        utterances, places = chosen_BC[:, 2 * size :].nonzero()
        extensions = utterances, *np.divmod(places, log_probs_BV.shape[1])
        free = _first_free(is_free_BK, utterances)

        _, candidates.label_source_BK[free] = candidates.best_source(*extensions)
        parents = beams.prefix_BK[extensions[:2]]
        self._prefixes.slots[beams.prefix_BK[is_free_BK]] = -1
        beams.prefix_BK[is_free_BK] = beams.parent_BK[is_free_BK] = _NO_PREFIX
        beams.blank_BK[:] = np.where(by_blank_BK, candidates.by_blank_BK, -np.inf)
        beams.label_BK[:] = np.where(by_label_BK, candidates.by_label_BK, -np.inf)
        beams.label_BK[free] = candidates.extended_BKV[extensions]
        self._place(beams, free, parents, extensions[2])
        sources_B2K = np.concatenate([candidates.best_pair_BK, candidates.label_source_BK], axis=1)
        labels_B2K = np.concatenate([np.full_like(beams.last_BK, BLANK), beams.last_BK], axis=1)
        self._trace.append((sources_B2K, labels_B2K))

    def _place(self, beams: _Beams, free: tuple[Ints, Ints], parents: Ints, labels: Ints) -> None:
        """Put the extended prefixes into free slots."""
        children = self._prefixes.extend(parents, labels)
        beams.prefix_BK[free], beams.parent_BK[free], beams.last_BK[free] = children, parents, labels
        self._prefixes.slots[children] = free[1]
        if beams.words_BKV is not None and children:
            beams.words_BKV[free] = self._prefixes.word_scores(children)

    def best_paths(self, n_best: int) -> list[list[CTCPath]]:
        """The best label sequences at the end of each utterance."""
        blank_BK, label_BK, size = self._beams.blank_BK, self._beams.label_BK, self._size
        scores_BK = np.logaddexp(blank_BK, label_BK) + self._prefixes.final_scores(self._beams.prefix_BK)
        slots_BN = np.argsort(-scores_BK, axis=1, kind="stable")[:, :n_best]
        scores_BN = np.take_along_axis(scores_BK, slots_BN, 1)
        in_label_BK = blank_BK < label_BK
        pairs_BN = slots_BN + size * np.take_along_axis(in_label_BK, slots_BN, 1)
        paths_BNS = self._trace_back(pairs_BN)
        return [
            [CTCPath(score, path_S) for score, path_S in zip(scores, paths_NS, strict=True) if score > -np.inf]
            for scores, paths_NS in zip(scores_BN.tolist(), paths_BNS, strict=True)
        ]

    def _trace_back(self, pairs_BN: Ints) -> Ints:
        """paths_BNS: the label of each frame on the best path to these pairs; BLANK beyond an utterance's end."""
        paths_BNS = np.full((*pairs_BN.shape, len(self._trace)), BLANK)
        for frame in range(len(self._trace) - 1, -1, -1):
            sources_B2K, labels_B2K = self._trace[frame]
            utterances = len(labels_B2K)
            here = self._beams.row_B1[:utterances], pairs_BN[:utterances]
            paths_BNS[:utterances, :, frame] = labels_B2K[here]
            pairs_BN[:utterances] = sources_B2K[here]
        return paths_BNS


def _first_free(is_free_BK: NDArray[np.bool_], utterances: Ints) -> tuple[Ints, Ints]:
    """(rows, slots) for new prefixes of these utterances (in ascending order): the first free slots of each."""
    wanted_B = np.bincount(utterances, minlength=len(is_free_BK))
    rank_BK = is_free_BK.cumsum(axis=1)
    rows, slots = (is_free_BK & (rank_BK <= wanted_B[:, None])).nonzero()
    return rows, slots


def _choose_best(scores_BC: Floats, most: int, threshold: float) -> NDArray[np.bool_]:
    """Mask_BC of the `most` best scores of each row within `threshold` of its best; of equal scores the first."""
    floor_B1 = scores_BC.max(axis=1, keepdims=True) - threshold
    if scores_BC.shape[1] > most:
        floor_B1 = np.maximum(floor_B1, np.partition(scores_BC, -most, axis=1)[:, -most, None])
    chosen_BC: NDArray[np.bool_] = (scores_BC >= floor_B1) & (scores_BC > -np.inf)
    for row in np.flatnonzero(chosen_BC.sum(axis=1) > most):
        ordered = np.argsort(-scores_BC[row], kind="stable")
        chosen_BC[row, ordered[most:]] = False
    return chosen_BC

"""CTC prefix beam search in numpy, for all utterances of a batch at once.

A prefix is a sequence of labels. A beam holds pairs (prefix, whether its last frame was blank), since only after a
blank may a label be repeated. In each frame every pair stays (by a blank, or by saying its last label on) or is
extended by a label; pairs that meet are added up; the best `beam_size` pairs of an utterance go on. A beam that is wide
enough for all prefixes thus finds the most probable labels exactly, summed over all their alignments.

The search of flashlight-text is the same, to the last path, but for equal scores: there it depends on addresses in
memory which of them stays, here the first one does.

B utterances, S frames, V labels, K slots of a beam: each holds a prefix with its two pairs, or nothing. A prefix keeps
its slot as long as one of its pairs stays. Pairs are numbered by slot: k if it ends in blank, K + k if in its label.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sonosco_like.decoding.word_scores import WordScorer, WordState
from sonosco_like.records import BLANK

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_NOTHING = 0  # the number of no prefix: what an empty slot holds, and what the empty prefix is an extension of


class Reading(NamedTuple):
    """A label sequence as the best of its paths says it, frame by frame, and its score over all paths."""

    score: float
    path_S: Ints


def prefix_beam_search(
    log_probs_BSV: NDArray[np.floating],
    lengths_B: NDArray[np.integer],
    beam_size: int,
    threshold: float = 50.0,
    n_best: int = 1,
    scorer: WordScorer | None = None,
) -> list[list[Reading]]:
    """The `n_best` most probable label sequences of each utterance, best first; none if no path has any probability."""
    longest_first_B = np.argsort(-lengths_B, kind="stable")
    utterances, labels = len(lengths_B), log_probs_BSV.shape[2]
    search = _Search(utterances, beam_size, labels, threshold, _Prefixes(utterances, labels, scorer))
    for frame in range(int(lengths_B.max(initial=0))):
        listening = longest_first_B[: np.count_nonzero(lengths_B > frame)]
        search.hear(log_probs_BSV[listening, frame].astype(np.float64))
    readings: list[list[Reading]] = [[]] * utterances
    for utterance, found in zip(longest_first_B.tolist(), search.readings(n_best), strict=True):
        length = lengths_B[utterance]
        readings[utterance] = [Reading(score, path_S[:length]) for score, path_S in found]
    return readings


class _Prefixes:
    """Every prefix met so far has one number, so that it is known again when it comes back into a beam.

    The empty prefixes of the utterances have the first numbers. `slots` says where each prefix is, -1 if nowhere.
    """

    def __init__(self, utterances: int, labels: int, scorer: WordScorer | None) -> None:
        self.scorer = scorer
        self._labels, self._count = labels, utterances + 1
        self.slots = np.full(1024 + utterances, -1)
        self.slots[1 : self._count] = 0
        self._children: dict[int, int] = {}  # by prefix * labels + label: numbers, which cost no garbage collection
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
        """What each label adds to each prefix, apart from the audio."""
        assert self.scorer is not None
        return [self.scorer.next_scores(self._words[prefix]) for prefix in prefixes]

    def final_scores(self, prefix_BK: Ints) -> Floats:
        """What the end of the utterance adds to each prefix."""
        scores_BK = np.zeros(prefix_BK.shape)
        if self.scorer:
            held = prefix_BK != _NOTHING
            scores_BK[held] = [self.scorer.finish(self._words[prefix]) for prefix in prefix_BK[held].tolist()]
        return scores_BK


class _Beams(NamedTuple):
    """The beams of all utterances, the longest utterance first: changed in place, a frame at a time.

    `blank_BK` and `label_BK` are log probabilities that a prefix ends in a blank or in its `last` label; `words_BKV` is
    what the next label adds to it by its words.
    """

    prefix_BK: Ints
    parent_BK: Ints
    last_BK: Ints
    blank_BK: Floats
    label_BK: Floats
    words_BKV: Floats | None

    @classmethod
    def at_start(cls, utterances: int, beam_size: int, labels: int, prefixes: _Prefixes) -> _Beams:
        shape = utterances, beam_size
        beams = cls(
            prefix_BK=np.full(shape, _NOTHING),
            parent_BK=np.full(shape, _NOTHING),
            last_BK=np.full(shape, BLANK),
            blank_BK=np.full(shape, -np.inf),
            label_BK=np.full(shape, -np.inf),
            words_BKV=np.zeros((*shape, labels)) if prefixes.scorer else None,
        )
        numbers = range(1, utterances + 1)
        beams.prefix_BK[:, 0], beams.blank_BK[:, 0] = numbers, 0.0
        if beams.words_BKV is not None:
            beams.words_BKV[:, 0] = prefixes.word_scores(numbers)
        return beams

    def first(self, utterances: int) -> _Beams:
        """A view of the first ones."""
        return _Beams(
            self.prefix_BK[:utterances],
            self.parent_BK[:utterances],
            self.last_BK[:utterances],
            self.blank_BK[:utterances],
            self.label_BK[:utterances],
            None if self.words_BKV is None else self.words_BKV[:utterances],
        )


class _Steps:
    """One frame of audio heard by the beams: how each pair may stay or grow, and from which pair it then comes best.

    `candidates_BC` are the scores of all that may be: staying by a blank, by a label (K each), extensions (K * V).
    """

    def __init__(self, beams: _Beams, log_probs_BV: Floats, parent_slots_BK: Ints) -> None:
        self._beams, self._log_probs_BV = beams, log_probs_BV
        utterances, size = beams.blank_BK.shape
        everywhere = np.arange(utterances)[:, None], np.arange(size)
        blank_BK, label_BK, last_BK = beams.blank_BK, beams.label_BK, beams.last_BK
        in_blank_BK = blank_BK >= label_BK
        self._best_BK = np.where(in_blank_BK, blank_BK, label_BK)
        self.best_pair_BK = everywhere[1] + size * ~in_blank_BK
        self.label_source_BK = everywhere[1] + np.full((utterances, 1), size)

        self.candidates_BC = np.empty((utterances, 2 * size + size * log_probs_BV.shape[1]))
        self.by_blank_BK, self.by_label_BK = self.candidates_BC[:, :size], self.candidates_BC[:, size : 2 * size]
        self.extended_BKV = self.candidates_BC[:, 2 * size :].reshape(utterances, size, -1)
        total_BK = np.logaddexp(blank_BK, label_BK)
        np.add(total_BK, log_probs_BV[:, BLANK, None], out=self.by_blank_BK)
        np.add(label_BK, log_probs_BV[everywhere[0], last_BK], out=self.by_label_BK)
        np.add(total_BK[..., None], log_probs_BV[:, None], out=self.extended_BKV)
        if beams.words_BKV is not None:
            self.extended_BKV += beams.words_BKV
        self.extended_BKV[(*everywhere, last_BK)] = blank_BK + self._gain(*everywhere, last_BK)
        self.extended_BKV[..., BLANK] = -np.inf
        self._add_up_meetings(parent_slots_BK)

    def _gain(self, utterances: Ints, slots: Ints, labels: Ints) -> Floats:
        """What an extension adds to a score."""
        gain: Floats = self._log_probs_BV[utterances, labels]
        return gain if self._beams.words_BKV is None else gain + self._beams.words_BKV[utterances, slots, labels]

    def _add_up_meetings(self, parent_slots_BK: Ints) -> None:
        """An extension that leads to a prefix in the beam is another way to stay there."""
        here = (parent_slots_BK >= 0).nonzero()
        extension = here[0], parent_slots_BK[here], self._beams.last_BK[here]
        single, source = self.best_single(*extension)
        by_label = self.by_label_BK[here]
        self.label_source_BK[here] = np.where(single > by_label, source, self.label_source_BK[here])
        self.by_label_BK[here] = np.logaddexp(by_label, self.extended_BKV[extension])
        self.extended_BKV[extension] = -np.inf

    def best_single(self, utterances: Ints, slots: Ints, labels: Ints) -> tuple[Floats, Ints]:
        """The better of the pairs from which a slot can be extended by a label: its score so extended, its number."""
        here = utterances, slots
        is_repeat = labels == self._beams.last_BK[here]
        score = np.where(is_repeat, self._beams.blank_BK[here], self._best_BK[here])
        return score + self._gain(utterances, slots, labels), np.where(is_repeat, slots, self.best_pair_BK[here])


class _Search:
    """The beams, and the way they came."""

    def __init__(self, utterances: int, beam_size: int, labels: int, threshold: float, prefixes: _Prefixes) -> None:
        self._size, self._threshold, self._prefixes = beam_size, threshold, prefixes
        self._beams = _Beams.at_start(utterances, beam_size, labels, prefixes)
        self._trace: list[tuple[Ints, Ints]] = []  # of each frame: where each pair came from, the label of each slot

    def hear(self, log_probs_BV: Floats) -> None:
        """Go one frame on with those utterances that are long enough, the first ones."""
        beams, size = self._beams.first(len(log_probs_BV)), self._size
        steps = _Steps(beams, log_probs_BV, self._prefixes.slots[beams.parent_BK])
        chosen_BC = _best(steps.candidates_BC, size, self._threshold)
        by_blank_BK, by_label_BK = chosen_BC[:, :size], chosen_BC[:, size : 2 * size]
        is_free_BK = ~(by_blank_BK | by_label_BK)
        utterances, places = chosen_BC[:, 2 * size :].nonzero()
        extensions = utterances, *np.divmod(places, log_probs_BV.shape[1])
        free = _first_free(is_free_BK, utterances)

        _, steps.label_source_BK[free] = steps.best_single(*extensions)
        parents = beams.prefix_BK[extensions[:2]]
        self._prefixes.slots[beams.prefix_BK[is_free_BK]] = -1
        beams.prefix_BK[is_free_BK] = beams.parent_BK[is_free_BK] = _NOTHING
        beams.blank_BK[:] = np.where(by_blank_BK, steps.by_blank_BK, -np.inf)
        beams.label_BK[:] = np.where(by_label_BK, steps.by_label_BK, -np.inf)
        beams.label_BK[free] = steps.extended_BKV[extensions]
        self._settle(beams, free, parents, extensions[2])
        sources_B2K = np.concatenate([steps.best_pair_BK, steps.label_source_BK], axis=1)
        self._trace.append((sources_B2K, beams.last_BK.copy()))

    def _settle(self, beams: _Beams, free: tuple[Ints, Ints], parents: Ints, labels: Ints) -> None:
        """Put extended prefixes into free slots."""
        children = self._prefixes.extend(parents, labels)
        beams.prefix_BK[free], beams.parent_BK[free], beams.last_BK[free] = children, parents, labels
        self._prefixes.slots[children] = free[1]
        if beams.words_BKV is not None and children:
            beams.words_BKV[free] = self._prefixes.word_scores(children)

    def readings(self, n_best: int) -> list[list[Reading]]:
        """What the beams say at the end."""
        blank_BK, label_BK, size = self._beams.blank_BK, self._beams.label_BK, self._size
        scores_BK = np.logaddexp(blank_BK, label_BK) + self._prefixes.final_scores(self._beams.prefix_BK)
        slots_BN = np.argsort(-scores_BK, axis=1, kind="stable")[:, :n_best]
        scores_BN = np.take_along_axis(scores_BK, slots_BN, 1)
        in_label_BK = blank_BK < label_BK
        pairs_BN = slots_BN + size * np.take_along_axis(in_label_BK, slots_BN, 1)
        paths_BNS = self._follow(pairs_BN)
        return [
            [Reading(score, path_S) for score, path_S in zip(scores, paths_NS, strict=True) if score > -np.inf]
            for scores, paths_NS in zip(scores_BN.tolist(), paths_BNS, strict=True)
        ]

    def _follow(self, pairs_BN: Ints) -> Ints:
        """The labels said in each frame on the best way to these pairs; BLANK beyond an utterance's end."""
        paths_BNS = np.full((*pairs_BN.shape, len(self._trace)), BLANK)
        for frame in range(len(self._trace) - 1, -1, -1):
            sources_B2K, last_BK = self._trace[frame]
            pairs = pairs_BN[: len(last_BK)]
            labels = np.take_along_axis(last_BK, pairs % self._size, 1)
            paths_BNS[: len(last_BK), :, frame] = np.where(pairs < self._size, BLANK, labels)
            pairs_BN[: len(last_BK)] = np.take_along_axis(sources_B2K, pairs, 1)
        return paths_BNS


def _first_free(is_free_BK: NDArray[np.bool_], utterances: Ints) -> tuple[Ints, Ints]:
    """Where to put new prefixes of these utterances (in ascending order): the first free slots of each."""
    wanted_B = np.bincount(utterances, minlength=len(is_free_BK))
    rank_BK = is_free_BK.cumsum(axis=1)
    rows, slots = (is_free_BK & (rank_BK <= wanted_B[:, None])).nonzero()
    return rows, slots


def _best(scores_BC: Floats, most: int, threshold: float) -> NDArray[np.bool_]:
    """Which are the `most` best scores of each row within `threshold` of its best; the first ones of equals."""
    floor_B1 = scores_BC.max(axis=1, keepdims=True) - threshold
    if scores_BC.shape[1] > most:
        floor_B1 = np.maximum(floor_B1, np.partition(scores_BC, -most, axis=1)[:, -most, None])
    chosen_BC: NDArray[np.bool_] = (scores_BC >= floor_B1) & (scores_BC > -np.inf)
    for row in np.flatnonzero(chosen_BC.sum(axis=1) > most):
        ordered = np.argsort(-scores_BC[row], kind="stable")
        chosen_BC[row, ordered[most:]] = False
    return chosen_BC

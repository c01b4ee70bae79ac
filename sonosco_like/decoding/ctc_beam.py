"""CTC beam search: the most probable text over all alignments, with a language model and hot words if wished."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from sonosco_like.decoding.decoder import Decoder, Vocabulary, ctc_log_probs, require_positive
from sonosco_like.decoding.flashlight_search import flashlight_beam_search, is_installed
from sonosco_like.decoding.prefix_search import Reading, prefix_beam_search
from sonosco_like.decoding.timing import ctc_spans, hypothesis_of
from sonosco_like.decoding.word_scores import WordScores
from sonosco_like.errors import UsageError
from sonosco_like.models.interfaces import SpeechModel
from sonosco_like.records import BLANK, Hypothesis, Output
from sonosco_like.serialization import serializable

_FLASHLIGHT_CANDIDATES = 2048  # in a frame; with more, our own search is sooner done: benchmarks/bench_decoding.py


@serializable
class CTCBeamDecoder(Decoder):
    """Prefix beam search (Graves & Jaitly 2014, Hannun et al. 2014).

    `beam_size` counts pairs of a prefix and whether it ends in a blank, as flashlight-text does. What is further than
    `beam_threshold` (natural logarithm) below the best is dropped. `words` adds a language model, a bonus per word and
    hot words.

    The `engine` flashlight gives the same result, sooner for few utterances and a small beam, later for a batch. It
    knows no `words`, and which of equal scores it keeps changes from run to run. So `auto` leaves to it, where it is
    installed, only few utterances in which no frame has equally probable labels.
    """

    beam_size: int = 16
    beam_threshold: float = 50.0
    n_best: int = 1
    words: WordScores = field(default_factory=WordScores)
    engine: Literal["auto", "builtin", "flashlight"] = "auto"

    def __post_init__(self) -> None:
        require_positive(beam_size=self.beam_size, beam_threshold=self.beam_threshold, n_best=self.n_best)
        if self.engine == "flashlight" and self.words.are_scored:
            raise UsageError("The engine `flashlight` knows no `words`. Set `engine: builtin`.")

    def decode(
        self,
        output: Output,
        vocabulary: Vocabulary,
        *,
        model: SpeechModel | None = None,
        frame_seconds: float = 1.0,
    ) -> list[list[Hypothesis]]:
        """Up to `n_best` readings of each utterance; the score is log p(text | audio) and what `words` adds."""
        log_probs_BSV = ctc_log_probs(output).cpu().numpy()
        lengths_B = output.encoded_lengths_B.cpu().numpy()
        decoded = []
        for row, readings in enumerate(self._search(log_probs_BSV, lengths_B, vocabulary)):
            length = int(lengths_B[row])
            readings = readings or [_silence(length)]
            decoded.append(_hypotheses(readings, log_probs_BSV[row, :length], vocabulary, frame_seconds))
        return decoded

    def _search(
        self, log_probs_BSV: NDArray[np.float32], lengths_B: NDArray[np.int64], vocabulary: Vocabulary
    ) -> list[list[Reading]]:
        limits = self.beam_size, self.beam_threshold, self.n_best
        if self.engine == "flashlight" or (self.engine == "auto" and self._suits_flashlight(log_probs_BSV, lengths_B)):
            return [flashlight_beam_search(log_probs_SV, *limits) for log_probs_SV in _cut(log_probs_BSV, lengths_B)]
        scorer = self.words.scorer(vocabulary.symbols)
        return prefix_beam_search(log_probs_BSV, lengths_B, *limits, scorer)

    def _suits_flashlight(self, log_probs_BSV: NDArray[np.float32], lengths_B: NDArray[np.int64]) -> bool:
        utterances, _, labels = log_probs_BSV.shape
        if utterances * self.beam_size * labels > _FLASHLIGHT_CANDIDATES or self.words.are_scored or not is_installed():
            return False
        return not any(_has_equals(log_probs_SV) for log_probs_SV in _cut(log_probs_BSV, lengths_B))


def _hypotheses(
    readings: list[Reading], log_probs_SV: NDArray[np.float32], vocabulary: Vocabulary, frame_seconds: float
) -> list[Hypothesis]:
    paths_NS = np.stack([reading.path_S for reading in readings])
    log_probs_NS = np.take_along_axis(log_probs_SV, paths_NS.T, axis=1).T
    return [
        hypothesis_of(spans, reading.score, vocabulary, frame_seconds)
        for spans, reading in zip(ctc_spans(paths_NS, log_probs_NS), readings, strict=True)
    ]


def _cut(log_probs_BSV: NDArray[np.float32], lengths_B: NDArray[np.int64]) -> list[NDArray[np.float32]]:
    """Each utterance without its padding."""
    return [log_probs_SV[:length] for log_probs_SV, length in zip(log_probs_BSV, lengths_B.tolist(), strict=True)]


def _has_equals(log_probs_SV: NDArray[np.float32]) -> bool:
    """Whether two labels of a frame that can be said at all are equally probable."""
    sorted_SV = np.sort(log_probs_SV, axis=1)
    return bool(((sorted_SV[:, 1:] == sorted_SV[:, :-1]) & (sorted_SV[:, 1:] > -np.inf)).any())


def _silence(frames: int) -> Reading:
    """What is left if the model gives no path any probability, as one that has diverged does."""
    return Reading(-torch.inf, np.full(frames, BLANK))

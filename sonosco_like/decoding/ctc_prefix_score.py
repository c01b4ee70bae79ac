"""How probable a beginning is to a CTC output: the sum over everything that may follow it (Watanabe et al. 2017).

A beginning is described by the probabilities that exactly it has been said up to each frame, the last frame being its
last label or a blank. They follow from those of the beginning without its last label by a recursion over frames, which
is linear; divided by the running product of the emissions it is a running sum, and thus one `logcumsumexp`.

Shape suffixes as in `records`, S here with one place more at the front, before any frame, where it says so; N rows of a
search; C candidates for the next label.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from sonosco_like.models.masking import length_mask
from sonosco_like.records import BLANK

IMPOSSIBLE = -1e10  # a logarithm that can be calculated with, unlike -inf


@dataclass(frozen=True)
class Beginnings:
    """One beginning per row: `by_label_NS` and `by_blank_NS` have the place before any frame."""

    last_N: Tensor
    by_label_NS: Tensor
    by_blank_NS: Tensor
    score_N: Tensor

    def select(self, index_N: Tensor) -> Beginnings:
        """The rows of `index_N`, in that order."""
        return Beginnings(
            self.last_N[index_N], self.by_label_NS[index_N], self.by_blank_NS[index_N], self.score_N[index_N]
        )


class CTCPrefixScorer:
    """Scores beginnings of the utterances of a batch; row n of a search belongs to utterance `utterance_N[n]`."""

    def __init__(self, log_probs_BSV: Tensor, lengths_B: Tensor, utterance_N: Tensor) -> None:
        wide = torch.float32 if log_probs_BSV.device.type == "mps" else torch.float64
        log_probs_BSV = log_probs_BSV.to(wide).clamp(min=IMPOSSIBLE)
        padding_BS = ~length_mask(lengths_B, log_probs_BSV.shape[1])
        log_probs_BSV = log_probs_BSV.masked_fill(padding_BS[:, :, None], IMPOSSIBLE)
        log_probs_BSV[..., BLANK].masked_fill_(padding_BS, 0.0)  # what was said up to the end stays said
        self._log_probs_BSV = log_probs_BSV
        self._utterance_N = utterance_N

    def select(self, index_N: Tensor) -> CTCPrefixScorer:
        """The scorer of a search that goes on with these rows, in that order."""
        selected = copy(self)
        selected._utterance_N = self._utterance_N[index_N]
        return selected

    def start(self) -> Beginnings:
        """Nothing has been said in any row."""
        blank_NS = self._log_probs_BSV[self._utterance_N, :, BLANK]
        by_blank_NS = torch.nn.functional.pad(blank_NS.cumsum(1), (1, 0))
        by_label_NS = torch.full_like(by_blank_NS, IMPOSSIBLE)
        last_N, score_N = torch.full_like(self._utterance_N, BLANK), torch.zeros_like(by_blank_NS[:, 0])
        return Beginnings(last_N, by_label_NS, by_blank_NS, score_N)

    def extended(self, beginnings: Beginnings, labels_NC: Tensor) -> Tensor:
        """log p_NC of the beginnings with one more label, whatever follows."""
        return (self._before(beginnings, labels_NC) + self._emissions(labels_NC)).logsumexp(1)

    def finished(self, beginnings: Beginnings) -> Tensor:
        """log p_N that exactly these labels are all that was said."""
        return torch.logaddexp(beginnings.by_label_NS[:, -1], beginnings.by_blank_NS[:, -1])

    def extend(self, beginnings: Beginnings, labels_N: Tensor, score_N: Tensor) -> Beginnings:
        """The beginnings with one more label each, of which `extended` gave the scores."""
        before_NS = self._before(beginnings, labels_N[:, None])[..., 0]
        by_label_NS = _accumulate(before_NS, self._emissions(labels_N[:, None])[..., 0])
        blank_NS = self._log_probs_BSV[self._utterance_N, :, BLANK]
        by_blank_NS = _accumulate(by_label_NS[:, :-1], blank_NS)
        return Beginnings(labels_N, by_label_NS, by_blank_NS, score_N)

    def _before(self, beginnings: Beginnings, labels_NC: Tensor) -> Tensor:
        """log p_NSC that the beginning is said before a frame and the label may follow: itself only after a blank."""
        by_blank_NS = beginnings.by_blank_NS[:, :-1]
        either_NS = torch.logaddexp(by_blank_NS, beginnings.by_label_NS[:, :-1])
        is_repeat_NC = labels_NC == beginnings.last_N[:, None]
        return torch.where(is_repeat_NC[:, None], by_blank_NS[..., None], either_NS[..., None])

    def _emissions(self, labels_NC: Tensor) -> Tensor:
        frames_S = torch.arange(self._log_probs_BSV.shape[1], device=labels_NC.device)
        return self._log_probs_BSV[self._utterance_N[:, None, None], frames_S[:, None], labels_NC[:, None]]


def _accumulate(arriving_NS: Tensor, emission_NS: Tensor) -> Tensor:
    """said[t] = (said[t - 1] + arriving[t]) * emission[t] for all frames, with nothing said before the first."""
    product_NS = emission_NS.cumsum(1)
    said_NS = product_NS + (arriving_NS - (product_NS - emission_NS)).logcumsumexp(1)
    return torch.nn.functional.pad(said_NS, (1, 0), value=IMPOSSIBLE)

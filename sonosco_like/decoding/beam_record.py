"""The memory of a batched beam search: what was chosen at each step, and which hypotheses have ended.

B utterances, K beams of each; a row of one step is a beam before that step's label is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Ended:
    """The best ended hypotheses of each utterance so far: score, and the step and row in which END was said."""

    score_BK: Tensor
    step_BK: Tensor
    row_BK: Tensor

    @classmethod
    def none(cls, utterances: int, beams: int, device: torch.device) -> Ended:
        """Before the first step."""
        nothing_BK = torch.zeros(utterances, beams, dtype=torch.int64, device=device)
        return cls(torch.full((utterances, beams), -torch.inf, device=device), nothing_BK, nothing_BK)

    def add(self, score_BK: Tensor, step: int) -> None:
        """Let every row of a step end, and keep the best; of equal ones the shortest."""
        beams = score_BK.shape[1]
        rows_BK = torch.arange(beams, device=score_BK.device).expand_as(score_BK)
        scores = torch.cat([self.score_BK, score_BK], 1)
        order = scores.argsort(dim=1, descending=True, stable=True)[:, :beams]
        self.score_BK = scores.gather(1, order)
        self.step_BK = torch.cat([self.step_BK, torch.full_like(rows_BK, step)], 1).gather(1, order)
        self.row_BK = torch.cat([self.row_BK, rows_BK], 1).gather(1, order)


@dataclass
class History:
    """The choices of each step; kept on the device, and followed back only for what is returned."""

    parents: list[Tensor] = field(default_factory=list)  # BK: which row of the step goes on
    labels: list[Tensor] = field(default_factory=list)  # BK: with which label
    confidences: list[Tensor] = field(default_factory=list)  # BK: the attention decoder's log p of it
    attentions: list[Tensor] = field(default_factory=list)  # BKS: of the rows of the step

    def add(self, parent_BK: Tensor, label_BK: Tensor, confidence_BK: Tensor, attention_BKS: Tensor) -> None:
        """Remember one step."""
        self.parents.append(parent_BK)
        self.labels.append(label_BK)
        self.confidences.append(confidence_BK)
        self.attentions.append(attention_BKS)

    def on_host(self) -> History:
        """The same with everything but the attention copied to the host."""
        return History(
            _copied(self.parents), _copied(self.labels), _copied(self.confidences), attentions=self.attentions
        )

    def follow(self, utterance: int, step: int, row: int) -> tuple[list[int], list[float], Tensor]:
        """(labels, their confidences, attention_US) of the hypothesis that ended in a row of a step."""
        labels, confidences, attentions = [], [], []
        for earlier in range(step - 1, -1, -1):
            labels.append(int(self.labels[earlier][utterance, row]))
            confidences.append(float(self.confidences[earlier][utterance, row].exp()))
            row = int(self.parents[earlier][utterance, row])
            attentions.append(self.attentions[earlier][utterance, row])
        attention_US = torch.stack(attentions[::-1]).cpu() if attentions else torch.empty(0, 0)
        return labels[::-1], confidences[::-1], attention_US


def _copied(steps: list[Tensor]) -> list[Tensor]:
    """The tensors on the host, in one copy."""
    return list(torch.stack(steps).cpu()) if steps else []

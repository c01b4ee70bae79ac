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
        return cls(torch.full((utterances, beams), -torch.inf, device=device), nothing_BK, nothing_BK.clone())

    def add(self, utterance_B: Tensor, score_BK: Tensor, step: int) -> None:
        """Let every row of a step end, and keep the best of these utterances; of equal ones the shortest."""
        beams = score_BK.shape[1]
        rows_BK = torch.arange(beams, device=score_BK.device).expand_as(score_BK)
        scores = torch.cat([self.score_BK[utterance_B], score_BK], 1)
        order = scores.argsort(dim=1, descending=True, stable=True)[:, :beams]
        steps = torch.cat([self.step_BK[utterance_B], torch.full_like(rows_BK, step)], 1)
        rows = torch.cat([self.row_BK[utterance_B], rows_BK], 1)
        self.score_BK[utterance_B] = scores.gather(1, order)
        self.step_BK[utterance_B] = steps.gather(1, order)
        self.row_BK[utterance_B] = rows.gather(1, order)


@dataclass
class History:
    """The choices of each step; kept on the device, and followed back only for what is returned."""

    utterances: int
    parents: list[Tensor] = field(default_factory=list)  # BK: which row of the step goes on
    labels: list[Tensor] = field(default_factory=list)  # BK: with which label
    confidences: list[Tensor] = field(default_factory=list)  # BK: the attention decoder's log p of it
    attentions: list[Tensor] = field(default_factory=list)  # BKS: of the rows of the step

    def add(
        self, utterance_B: Tensor, parent_BK: Tensor, label_BK: Tensor, confidence_BK: Tensor, attention_BKS: Tensor
    ) -> None:
        """Remember one step of these utterances."""
        parts = ((self.parents, parent_BK), (self.labels, label_BK), (self.confidences, confidence_BK))
        for steps, part_BKx in (*parts, (self.attentions, attention_BKS)):
            steps.append(self._of_all(utterance_B, part_BKx))

    def on_host(self) -> History:
        """The same with everything but the attention copied to the host."""
        parts = (_copied(self.parents), _copied(self.labels), _copied(self.confidences))
        return History(self.utterances, *parts, attentions=self.attentions)

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

    def _of_all(self, utterance_B: Tensor, part_BKx: Tensor) -> Tensor:
        if len(utterance_B) == self.utterances:
            return part_BKx
        all_BKx = part_BKx.new_zeros(self.utterances, *part_BKx.shape[1:])
        all_BKx[utterance_B] = part_BKx
        return all_BKx


def _copied(steps: list[Tensor]) -> list[Tensor]:
    """The tensors on the host, in one copy."""
    return list(torch.stack(steps).cpu()) if steps else []

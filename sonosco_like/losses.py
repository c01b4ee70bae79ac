"""Losses. Each is a mean over tokens or utterances and says which, so that running averages of it are exact.

Shape suffixes as in `records`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import field
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from sonosco_like.errors import DataError, UsageError
from sonosco_like.records import BLANK, END, Batch, Output
from sonosco_like.serialization import serializable, state
from sonosco_like.tensors import length_mask

logger = logging.getLogger(__name__)

WeightedBy = Literal["tokens", "utterances"]
_IGNORED = -100


class Loss(ABC):
    """A loss that is averaged over the tokens or the utterances of a batch.

    `loss(output, batch)` is a mean; times `weight(batch)` it is a sum, which adds up over batches and processes. For
    every loss the tokens of an utterance are its labels and END, so that losses of one batch can be added.
    """

    weighted_by: WeightedBy

    @abstractmethod
    def __call__(self, output: Output, batch: Batch) -> Tensor:
        """The mean loss as a 0-dimensional tensor, for `backward()`."""

    def weight(self, batch: Batch) -> Tensor | int:
        """The number of tokens or utterances in the mean; on the device of the batch, so that nothing waits for it."""
        return len(batch) if self.weighted_by == "utterances" else batch.label_lengths_B.sum() + len(batch)


@serializable
class CTCLoss(Loss):
    """Connectionist temporal classification (Graves et al. 2006): the sum over all alignments that give the labels.

    A target that needs more frames than the encoder left (one for each label, and one between equal neighbours) has no
    alignment. `too_long` says what happens then: `error` raises one that names the utterance; with `skip` the utterance
    counts with loss zero, and `skipped` grows by one. `zero_infinity` also sets other infinite losses, which come from
    numerical extremes, to zero.
    """

    weighted_by: WeightedBy = "tokens"
    too_long: Literal["error", "skip"] = "error"
    zero_infinity: bool = True
    skipped: int = state(default=0)

    def __call__(self, output: Output, batch: Batch) -> Tensor:
        """The sum of the utterances' negative log likelihoods, divided by the weight."""
        logits_BSV = _require_logits(output.ctc_logits_BSV, "CTCLoss", "CTC logits")
        unknown_BU = _unknown_labels(batch, logits_BSV.shape[-1])
        # One copy to the host for all checks: torch's CTC needs the lengths there anyway.
        host_4B = torch.stack(
            [output.encoded_lengths_B, batch.label_lengths_B, frames_needed(batch), unknown_BU.sum(1)]
        ).cpu()
        encoded_lengths_B, label_lengths_B, needed_B, unknown_B = host_4B.unbind()
        if unknown_B.any():
            _raise_unknown_label(batch, unknown_BU, logits_BSV.shape[-1])
        impossible = (needed_B > encoded_lengths_B).nonzero().flatten().tolist()
        if impossible:
            self._skip_or_raise(impossible, needed_B, encoded_lengths_B, batch)
        losses_B = functional.ctc_loss(
            logits_BSV.float().log_softmax(-1).transpose(0, 1),
            batch.labels_BU,
            encoded_lengths_B,
            label_lengths_B,
            blank=BLANK,
            reduction="none",
            zero_infinity=self.zero_infinity or bool(impossible),
        )
        return losses_B.sum() / self.weight(batch)

    def _skip_or_raise(self, impossible: list[int], needed_B: Tensor, available_B: Tensor, batch: Batch) -> None:
        worst = impossible[0]
        name = batch.ids[worst] if batch.ids else f"number {worst} of the batch"
        problem = (
            f"Utterance {name} needs at least {needed_B[worst]} encoded frames for its transcript, "
            f"but its audio has {available_B[worst]}."
        )
        if self.too_long == "error":
            raise DataError(
                f"{problem} Check that audio and transcript belong together, filter such utterances out, reduce time "
                f"less in the model, use larger text units, or set `too_long: skip` in CTCLoss."
            )
        if self.skipped == 0:
            logger.warning("%s It is skipped, like all such utterances; CTCLoss.skipped counts them.", problem)
        self.skipped += len(impossible)


@serializable
class CrossEntropyLoss(Loss):
    """Cross entropy of the labels and END under the teacher-forced attention decoder.

    With `label_smoothing` that share of each target is spread evenly over the vocabulary (Szegedy et al. 2016).
    """

    weighted_by: WeightedBy = "tokens"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.label_smoothing < 1.0:
            raise UsageError(f"`label_smoothing` must be at least 0 and below 1, got {self.label_smoothing}.")

    def __call__(self, output: Output, batch: Batch) -> Tensor:
        """The sum of the tokens' cross entropies, divided by the weight."""
        logits_BUV = _require_logits(output.attention_logits_BUV, "CrossEntropyLoss", "attention logits")
        total = functional.cross_entropy(
            logits_BUV.flatten(0, 1).float(),
            _targets_with_end(batch).flatten(),
            ignore_index=_IGNORED,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        return total / self.weight(batch)


@serializable
class JointLoss(Loss):
    """CTC and attention together (Kim et al. 2017): the monotonic alignment of CTC helps attention to align."""

    ctc_weight: float = 0.3
    ctc: CTCLoss = field(default_factory=CTCLoss)
    attention: CrossEntropyLoss = field(default_factory=CrossEntropyLoss)

    def __post_init__(self) -> None:
        if not 0.0 <= self.ctc_weight <= 1.0:
            raise UsageError(f"`ctc_weight` must be between 0 and 1, got {self.ctc_weight}.")
        if self.ctc.weighted_by != self.attention.weighted_by:
            raise UsageError(
                f"Both losses must have the same `weighted_by`, so that their sum is a mean, too; "
                f"got {self.ctc.weighted_by} for CTC and {self.attention.weighted_by} for attention."
            )

    @property
    def weighted_by(self) -> WeightedBy:  # type: ignore[override]
        """That of both losses."""
        return self.ctc.weighted_by

    def __call__(self, output: Output, batch: Batch) -> Tensor:
        """ctc_weight * CTC loss + (1 - ctc_weight) * attention loss; a loss with weight zero is not computed."""
        parts = [(self.ctc_weight, self.ctc), (1.0 - self.ctc_weight, self.attention)]
        return torch.stack([share * loss(output, batch) for share, loss in parts if share > 0.0]).sum()


def frames_needed(batch: Batch) -> Tensor:
    """The fewest frames in which CTC can write the labels of each utterance: equal neighbours need a blank between."""
    labels_BU = batch.labels_BU
    repeats_BU = (labels_BU[:, 1:] == labels_BU[:, :-1]) & length_mask(batch.label_lengths_B, labels_BU.shape[1])[:, 1:]
    return batch.label_lengths_B + repeats_BU.sum(1)


def _unknown_labels(batch: Batch, vocabulary: int) -> Tensor:
    """Mask_BU of labels that the model does not have: for them, torch's CTC would read memory that is not its own."""
    labels_BU = batch.labels_BU
    is_real_BU = length_mask(batch.label_lengths_B, labels_BU.shape[1])
    return ((labels_BU < 0) | (labels_BU >= vocabulary)) & is_real_BU


def _raise_unknown_label(batch: Batch, unknown_BU: Tensor, vocabulary: int) -> None:
    row, position = unknown_BU.nonzero()[0].tolist()
    name = batch.ids[row] if batch.ids else f"number {row} of the batch"
    raise UsageError(
        f"Utterance {name} has the label {batch.labels_BU[row, position]}, but the model writes {vocabulary} labels, "
        f"counted from 0: set `vocabulary_size` of the model to the size of the tokenizer."
    )


def _targets_with_end(batch: Batch) -> Tensor:
    """The labels, then END, then the index that cross entropy ignores: one position more than in the batch."""
    padded_BU = functional.pad(batch.labels_BU, (0, 1))
    positions_U = torch.arange(padded_BU.shape[1], device=padded_BU.device)
    ends_B1 = batch.label_lengths_B.unsqueeze(1)
    return padded_BU.masked_fill(positions_U == ends_B1, END).masked_fill(positions_U > ends_B1, _IGNORED)


def _require_logits(logits: Tensor | None, loss: str, what: str) -> Tensor:
    if logits is None:
        raise UsageError(
            f"{loss} needs {what}, but the model gave none. "
            f"Choose CTCLoss for a model with a CTC output, CrossEntropyLoss for one with an attention decoder, "
            f"JointLoss for one with both."
        )
    return logits

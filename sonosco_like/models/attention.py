"""Attention over the encoded frames, and the labels that an attention decoder reads in training.

An attention has a memory that it reads, scores, and a window that guides it at first. Some of the labels are replaced,
so that the decoder learns to recover from errors.

Shape suffixes as in `records`; here also N rows of a search, A size of a key, E size of a value, Q size of a query,
K distances in frames, C channels, M = N * H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.records import SPECIAL_SYMBOLS, START
from sonosco_like.serialization import serializable
from sonosco_like.tensors import length_mask

LEAST_PRIOR = 1e-6  # of every frame, so that its content can still attract attention


@dataclass(frozen=True, slots=True)
class Memory:
    """The encoded frames of each row of a search, prepared once for all steps.

    ```
    keys_NHSA    compared with queries
    values_NHSE  read where the keys match
    mask_NS      true on real frames
    utterance_N  the utterance that each row belongs to
    ```
    """

    keys_NHSA: Tensor
    values_NHSE: Tensor
    mask_NS: Tensor
    utterance_N: Tensor

    @classmethod
    def of_utterances(cls, keys_BHSA: Tensor, values_BHSE: Tensor, lengths_B: Tensor) -> Memory:
        """One row per utterance."""
        batch, _, frames, _ = keys_BHSA.shape
        rows_B = torch.arange(batch, device=keys_BHSA.device)
        return cls(keys_BHSA, values_BHSE, length_mask(lengths_B, frames), rows_B)

    def select(self, index_N: Tensor) -> Memory:
        """The rows of `index_N`; beams that change places within an utterance cost nothing: their frames are equal."""
        utterance_N = self.utterance_N[index_N]
        if torch.equal(utterance_N, self.utterance_N):
            return self
        return Memory(self.keys_NHSA[index_N], self.values_NHSE[index_N], self.mask_NS[index_N], utterance_N)

    def masked_softmax(self, scores_NHxS: Tensor) -> Tensor:
        """Weights over real frames; scores are (N, H, S) or (N, H, U, S)."""
        mask = self.mask_NS[:, None, None] if scores_NHxS.dim() == 4 else self.mask_NS[:, None]
        return scores_NHxS.float().masked_fill(~mask, float("-inf")).softmax(-1)


def split_heads(frames_BSD: Tensor, heads: int) -> Tensor:
    """frames_BHSA: the part of each frame that belongs to each head."""
    batch, frames, size = frames_BSD.shape
    return frames_BSD.view(batch, frames, heads, size // heads).transpose(1, 2)


def advance_probabilities(frames_per_label: float) -> Tensor:
    """Probabilities_K of an advance by 0, 1, ... frames: a negative binomial of order two with this mean."""
    ratio = frames_per_label / (frames_per_label + 2)
    distance_K = torch.arange(math.ceil(8 * frames_per_label) + 1)
    weights_K = (distance_K + 1) * ratio**distance_K
    return weights_K / weights_K.sum()


@serializable(version=2)
class Attention(nn.Module):
    """Attention of a decoder that makes one query at a time.

    `dot`: <phi(s), psi(h)> (Chan et al. 2015), with tanh layers phi and psi. `mlp`: v' tanh(W s + V h) (Bahdanau et al.
    2014). `location`: `mlp` plus features of the weights of the step before, from a convolution over time (Chorowski
    et al. 2015), which lets attention move on from where it was. Each head reads its own projection of the frames.

    With `frames_per_label`, attention expects to advance by about that many encoded frames per label: the logarithm of
    the last weights, moved forward by a fixed filter, is added to the scores (Battenberg et al. 2020, arXiv
    1910.10288). Attention then walks through an utterance from the first batch on, and only learns where to stop.
    """

    kind: Literal["dot", "mlp", "location"] = "dot"
    size: int = 512
    heads: int = 1
    location_channels: int = 10
    location_kernel: int = 31
    frames_per_label: float | None = None

    @staticmethod
    def upgrade(version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """Version 1 called `frames_per_label` `pace`."""
        return {"frames_per_label" if name == "pace" else name: value for name, value in fields.items()}

    def __post_init__(self) -> None:
        if self.heads < 1 or self.size % self.heads:
            raise UsageError(f"`size` must be a multiple of `heads`, got size {self.size} and {self.heads} heads.")
        if self.location_kernel % 2 == 0:
            raise UsageError(f"`location_kernel` must be odd, so that it has a middle, got {self.location_kernel}.")
        if self.frames_per_label is not None and self.frames_per_label <= 0:
            raise UsageError(f"`frames_per_label` must be more than 0, or null, got {self.frames_per_label}.")

    def build(self, query_size: int, encoded_size: int) -> None:
        if encoded_size % self.heads:
            raise UsageError(f"{encoded_size} encoded values cannot be divided among {self.heads} heads.")
        self.query = nn.Linear(query_size, self.size)
        self.key = nn.Linear(encoded_size, self.size)
        self.value = nn.Linear(encoded_size, encoded_size) if self.heads > 1 else nn.Identity()
        head_size = self.size // self.heads
        if self.kind != "dot":
            self.energy = nn.Parameter(torch.empty(self.heads, head_size).uniform_(-(head_size**-0.5), head_size**-0.5))
        if self.kind == "location":
            padding = self.location_kernel // 2
            self.locate = nn.Conv1d(1, self.location_channels, self.location_kernel, padding=padding, bias=False)
            self.location = nn.Linear(self.location_channels, head_size, bias=False)
        if self.frames_per_label is not None:
            self.register_buffer("advance_K", advance_probabilities(self.frames_per_label), persistent=False)

    def make_memory(self, encoded_BSD: Tensor, encoded_lengths_B: Tensor) -> Memory:
        """Prepare the encoded frames for the queries of all steps."""
        keys_BSA = self.key(encoded_BSD)
        if self.kind == "dot":
            keys_BSA = keys_BSA.tanh()
        keys_BHSA = split_heads(keys_BSA, self.heads)
        return Memory.of_utterances(keys_BHSA, split_heads(self.value(encoded_BSD), self.heads), encoded_lengths_B)

    def first_weights(self, memory: Memory) -> Tensor:
        """The weights_NHS "before" the first step: even; with `frames_per_label` all on the first frame."""
        weights_NS = memory.mask_NS.float() / memory.mask_NS.sum(1, keepdim=True)
        if self.frames_per_label is not None:
            weights_NS = torch.zeros_like(weights_NS)  # `one_hot` would fix the number of frames of an export
            weights_NS[:, 0] = 1.0
        return weights_NS[:, None].expand(-1, self.heads, -1)

    def forward(
        self, query_NQ: Tensor, memory: Memory, last_weights_NHS: Tensor, window_NS: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(context_ND, weights_NHS): the mean of the values, and its weights; `window_NS` is added to the scores."""
        query_NHA = self.query(query_NQ).view(query_NQ.shape[0], self.heads, -1)
        scores_NHS = self._scores(query_NHA, memory, last_weights_NHS)
        if window_NS is not None:
            scores_NHS = scores_NHS + window_NS[:, None]
        if self.frames_per_label is not None:
            scores_NHS = scores_NHS + self._log_prior(last_weights_NHS)
        weights_NHS = memory.masked_softmax(scores_NHS)
        context_NHE = torch.matmul(weights_NHS[:, :, None].to(memory.values_NHSE.dtype), memory.values_NHSE)
        return context_NHE.flatten(1), weights_NHS

    def _log_prior(self, last_weights_NHS: Tensor) -> Tensor:
        """Logarithm of the last weights after the expected advance."""
        filter_11K = self.get_buffer("advance_K").flip(0)[None, None]
        padded_M1S = nn.functional.pad(last_weights_NHS.flatten(0, 1)[:, None], (filter_11K.shape[2] - 1, 0))
        moved_M1S = nn.functional.conv1d(padded_M1S, filter_11K)
        return moved_M1S.view_as(last_weights_NHS).clamp(min=LEAST_PRIOR).log()

    def _scores(self, query_NHA: Tensor, memory: Memory, last_weights_NHS: Tensor) -> Tensor:
        if self.kind == "dot":
            scaled_NHA = query_NHA.tanh() * query_NHA.shape[2] ** -0.5
            return torch.matmul(memory.keys_NHSA, scaled_NHA[..., None])[..., 0]
        hidden_NHSA = memory.keys_NHSA + query_NHA[:, :, None]
        if self.kind == "location":
            last_M1S = last_weights_NHS.flatten(0, 1)[:, None]
            located_MSC = self.locate(last_M1S).transpose(1, 2)
            hidden_NHSA += self.location(located_MSC).view_as(hidden_NHSA)  # in place, because it is large
        return (hidden_NHSA.tanh_() * self.energy[:, None]).sum(-1)


def check_window_sigma(sigma: float | None) -> None:
    """Refuse a width that is not above zero."""
    if sigma is not None and sigma <= 0:
        raise UsageError(f"`window_sigma` must be more than 0, or null for no window, got {sigma}.")


def soft_window(encoded_lengths_B: Tensor, label_lengths_B: Tensor, size: tuple[int, int], sigma: float) -> Tensor:
    """A bias_BUS of `size` (U, S) to add to attention scores: -(s - centre)^2 / (2 sigma^2).

    Soft window pre-training (Hannun et al. 2019, section 2.4) draws attention to the diagonal: the centre of position u
    is where u would be if all labels, and END, took the same time. The bias makes a Gaussian peak around the centre.
    Each utterance has its own lengths, so padding has no influence.
    """
    positions_U = torch.arange(size[0], device=label_lengths_B.device)
    frames_per_label_B = encoded_lengths_B / (label_lengths_B + 1)
    centre_BU = (positions_U + 0.5) * frames_per_label_B[:, None] - 0.5
    distance_BUS = torch.arange(size[1], device=label_lengths_B.device) - centre_BU[:, :, None]
    return -distance_BUS.square() / (2 * sigma**2)


def check_share(name: str, share: float) -> None:
    """Refuse a share of labels that is not between 0 and 1."""
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"`{name}` is the share of labels to replace, between 0 and 1, got {share}.")


def prepend_start(labels_BU: Tensor) -> Tensor:
    """START, then the labels: what a decoder reads while it predicts the labels, then END."""
    start_B1 = labels_BU.new_full((labels_BU.shape[0], 1), START)
    return torch.cat([start_B1, labels_BU], dim=1)


def positions_to_replace(lengths_B: Tensor, size: int, share: float) -> Tensor:
    """Choose `share` of all labels of a batch: mask_BU, uniformly drawn from the first `lengths_B` of `size` positions.

    Of n labels, floor(share * n) or one more are chosen, such that their expected number is exactly share * n.
    """
    real_BU = length_mask(lengths_B, size)
    draw_BU = torch.rand(real_BU.shape, device=lengths_B.device).masked_fill(~real_BU, 2.0)
    wanted = torch.floor(share * lengths_B.sum() + torch.rand((), device=lengths_B.device))
    rank_BU = draw_BU.flatten().argsort().argsort().view(real_BU.shape)
    return (rank_BU < wanted) & real_BU


def replace_at_random(labels_BU: Tensor, lengths_B: Tensor, share: float, vocabulary_size: int) -> Tensor:
    """The labels with `share` of them replaced by random ordinary symbols (random sampling, Hannun et al. 2019)."""
    if share == 0.0 or labels_BU.shape[1] == 0:
        return labels_BU
    chosen_BU = positions_to_replace(lengths_B, labels_BU.shape[1], share)
    return torch.where(chosen_BU, torch.randint_like(labels_BU, len(SPECIAL_SYMBOLS), vocabulary_size), labels_BU)

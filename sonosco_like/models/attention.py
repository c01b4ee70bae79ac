"""Attention of a decoder that asks one question at a time."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from sonosco_like.errors import UsageError
from sonosco_like.models.memory import Memory, split_heads
from sonosco_like.serialization import serializable

FLOOR = 1e-6  # of what may be expected: content can still call attention anywhere


def steps_ahead(pace: float) -> Tensor:
    """Probabilities_K of moving ahead by 0, 1, ... frames: a negative binomial of order two with mean `pace`."""
    ratio = pace / (pace + 2)
    distance_K = torch.arange(math.ceil(8 * pace) + 1)
    weights_K = (distance_K + 1) * ratio**distance_K
    return weights_K / weights_K.sum()


@serializable
class Attention(nn.Module):
    """Where to look, given what the decoder has in mind.

    `dot`: <phi(s), psi(h)> (Chan et al. 2015), with tanh layers phi and psi. `mlp`: v' tanh(W s + V h) (Bahdanau et al.
    2014). `location`: `mlp` plus features of the weights of the step before, from a convolution over time (Chorowski
    et al. 2015), which lets it move on from where it was. Each of several heads reads its own projection of the frames.

    With a `pace`, attention expects to move ahead by about so many encoded frames per label: the logarithm of the last
    weights, carried forward by a fixed filter, is added to the scores (Battenberg et al. 2020, arXiv 1910.10288). It
    then walks through an utterance from the first batch on, and only has to learn where to stop.
    """

    kind: Literal["dot", "mlp", "location"] = "dot"
    size: int = 512
    heads: int = 1
    location_channels: int = 10
    location_kernel: int = 31
    pace: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be divided among the heads."""
        if self.heads < 1 or self.size % self.heads:
            raise UsageError(f"`size` must be a multiple of `heads`, got size {self.size} and {self.heads} heads.")
        if self.location_kernel % 2 == 0:
            raise UsageError(f"`location_kernel` must be odd, so that it has a middle, got {self.location_kernel}.")
        if self.pace is not None and self.pace <= 0:
            raise UsageError(f"`pace` must be more than 0 frames per label, or null, got {self.pace}.")

    def build(self, query_size: int, encoded_size: int) -> None:
        """Make the layers."""
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
        if self.pace is not None:
            self.register_buffer("steps_ahead", steps_ahead(self.pace), persistent=False)

    def remember(self, encoded_BSD: Tensor, encoded_lengths_B: Tensor) -> Memory:
        """Prepare the encoded frames for all questions to come."""
        keys_BSA = self.key(encoded_BSD)
        if self.kind == "dot":
            keys_BSA = keys_BSA.tanh()
        values_BSD = self.value(encoded_BSD)
        return Memory.of(split_heads(keys_BSA, self.heads), split_heads(values_BSD, self.heads), encoded_lengths_B)

    def first_weights(self, memory: Memory) -> Tensor:
        """Where a decoder that has not looked yet is taken to have looked: everywhere, or with a pace, at the start."""
        weights_NS = memory.mask_NS.float() / memory.mask_NS.sum(1, keepdim=True)
        if self.pace is not None:
            weights_NS = nn.functional.one_hot(torch.zeros_like(memory.utterance_N), weights_NS.shape[1]).float()
        return weights_NS[:, None].expand(-1, self.heads, -1)

    def forward(
        self, query_NQ: Tensor, memory: Memory, last_weights_NHS: Tensor, window_NS: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(context_ND, weights_NHS): what was read, and where; a window is added to the scores."""
        query_NHA = self.query(query_NQ).view(query_NQ.shape[0], self.heads, -1)
        scores_NHS = self._scores(query_NHA, memory, last_weights_NHS)
        if window_NS is not None:
            scores_NHS = scores_NHS + window_NS[:, None]
        if self.pace is not None:
            scores_NHS = scores_NHS + self._expected(last_weights_NHS)
        weights_NHS = memory.masked_softmax(scores_NHS)
        context_NHE = torch.matmul(weights_NHS[:, :, None].to(memory.values_NHSE.dtype), memory.values_NHSE)
        return context_NHE.flatten(1), weights_NHS

    def _expected(self, last_weights_NHS: Tensor) -> Tensor:
        """Logarithm of where the last weights have moved to at the expected pace."""
        filter_11K = self.get_buffer("steps_ahead").flip(0)[None, None]
        padded_M1S = nn.functional.pad(last_weights_NHS.flatten(0, 1)[:, None], (filter_11K.shape[2] - 1, 0))
        moved_M1S = nn.functional.conv1d(padded_M1S, filter_11K)
        return moved_M1S.view_as(last_weights_NHS).clamp(min=FLOOR).log()

    def _scores(self, query_NHA: Tensor, memory: Memory, last_weights_NHS: Tensor) -> Tensor:
        if self.kind == "dot":
            question_NHA = query_NHA.tanh() * query_NHA.shape[2] ** -0.5
            return torch.matmul(memory.keys_NHSA, question_NHA[..., None])[..., 0]
        hidden_NHSA = memory.keys_NHSA + query_NHA[:, :, None]
        if self.kind == "location":
            last_M1S = last_weights_NHS.flatten(0, 1)[:, None]
            located_MSC = self.locate(last_M1S).transpose(1, 2)
            hidden_NHSA += self.location(located_MSC).view_as(hidden_NHSA)  # in place: memory is what this costs
        return (hidden_NHSA.tanh_() * self.energy[:, None]).sum(-1)

"""Batch normalisation that counts real frames only, so that padding has no say in what a model learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn

from sonosco_like.models.masking import length_mask

EPSILON, MOMENTUM = 1e-5, 0.1


class _SumOfProcesses(torch.autograd.Function):
    """A sum over all processes. Each part of it counts in every process, so its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        total = part.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _SumOfProcesses.forward(ctx, gradients[0])


class RunningMoments(nn.Module):
    """Mean and variance per unit as seen in training, for use in evaluation.

    `shared` moments are those of the batches of all processes that train together, taken as one.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, units: int) -> None:
        super().__init__()
        self.shared = False
        self.register_buffer("mean", torch.zeros(units))
        self.register_buffer("variance", torch.ones(units))

    def total(self, sums: Tensor) -> Tensor:
        """Sums over a batch; over those of all processes, if the moments are shared."""
        if not self.shared:
            return sums
        total: Tensor = _SumOfProcesses.apply(sums)  # type: ignore[no-untyped-call]
        return total

    @torch.no_grad()
    def update(self, mean: Tensor, variance: Tensor) -> None:
        """Move a step towards the moments of one batch."""
        self.mean.lerp_(mean.float(), MOMENTUM)
        self.variance.lerp_(variance.float(), MOMENTUM)


class MaskedBatchNorm(nn.Module):
    """Batch normalisation of maps_BCTF over the real frames of a batch (and F), with a scale and shift per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))
        self.moments = RunningMoments(channels)

    def forward(self, maps_BCTF: Tensor, lengths_B: Tensor) -> Tensor:
        """The normalised maps; what stands in the padding is arbitrary."""
        if self.training:
            mean_C, variance_C = self._batch_moments(maps_BCTF, lengths_B)
            self.moments.update(mean_C, variance_C)
        else:
            mean_C, variance_C = self.moments.mean, self.moments.variance
        factor_C = self.scale * torch.rsqrt(variance_C + EPSILON)
        offset_C = self.shift - mean_C * factor_C
        return torch.addcmul(offset_C[:, None, None], maps_BCTF, factor_C[:, None, None])

    def _batch_moments(self, maps_BCTF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        total = self.moments.total
        maps_BCTF = maps_BCTF.float()
        mask_BT = length_mask(lengths_B, maps_BCTF.shape[2])
        count = total(lengths_B.sum() * maps_BCTF.shape[3])
        padding_B1T1 = ~mask_BT[:, None, :, None]
        mean_C = total(maps_BCTF.masked_fill(padding_B1T1, 0.0).sum((0, 2, 3))) / count
        deviation_BCTF = (maps_BCTF - mean_C[:, None, None]).masked_fill(padding_B1T1, 0.0)
        return mean_C, total(deviation_BCTF.square().sum((0, 2, 3))) / count

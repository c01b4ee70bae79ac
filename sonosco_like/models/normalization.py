"""Batch normalisation over real frames only, so that padding has no influence on what a model learns.

Shape suffixes as in `records`; here also C channels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn

from sonosco_like.tensors import length_mask

EPSILON, MOMENTUM = 1e-5, 0.1


class _SumOfProcesses(torch.autograd.Function):
    """A sum over all processes. Every process uses it, so the gradient of a part is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        total = part.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _SumOfProcesses.forward(ctx, gradients[0])


class RunningMoments(nn.Module):
    """Running mean and variance per unit, learned in training and used in evaluation.

    After `sync_batch_norm()` the batches of all processes that train together count as one batch. The code
    that prepares a model for several processes calls this method on every module that has it.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, units: int) -> None:
        super().__init__()
        self.shared = False
        self.register_buffer("mean", torch.zeros(units))
        self.register_buffer("variance", torch.ones(units))

    def sync_batch_norm(self) -> None:
        """Compute the moments over the batches of all processes from now on."""
        self.shared = True

    def sum_over_processes(self, sums: Tensor) -> Tensor:
        """These sums over a batch, added up over all processes if `shared`."""
        if not self.shared:
            return sums
        total: Tensor = _SumOfProcesses.apply(sums)  # type: ignore[no-untyped-call]
        return total

    @torch.no_grad()
    def update(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running moments one step towards those of a batch."""
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
        """The normalised maps_BCTF, with arbitrary values in the padding."""
        if self.training:
            mean_C, variance_C = self._batch_moments(maps_BCTF, lengths_B)
            self.moments.update(mean_C, variance_C)
        else:
            mean_C, variance_C = self.moments.mean, self.moments.variance
        factor_C = self.scale * torch.rsqrt(variance_C + EPSILON)
        offset_C = self.shift - mean_C * factor_C
        return torch.addcmul(offset_C[:, None, None], maps_BCTF, factor_C[:, None, None])

    def _batch_moments(self, maps_BCTF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        total = self.moments.sum_over_processes
        maps_BCTF = maps_BCTF.float()
        mask_BT = length_mask(lengths_B, maps_BCTF.shape[2])
        count = total(lengths_B.sum() * maps_BCTF.shape[3])
        padding_B1T1 = ~mask_BT[:, None, :, None]
        mean_C = total(maps_BCTF.masked_fill(padding_B1T1, 0.0).sum((0, 2, 3))) / count
        deviation_BCTF = (maps_BCTF - mean_C[:, None, None]).masked_fill(padding_B1T1, 0.0)
        return mean_C, total(deviation_BCTF.square().sum((0, 2, 3))) / count

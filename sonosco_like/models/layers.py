"""Layers that several encoders share: batch normalisation over real frames only, and recurrent layers.

Padding has no influence on what they learn. The two directions of a recurrent layer are two one-directional torch
layers; the second reads each utterance back to front by its own length. That is exact on padded batches and costs as
much as a bidirectional layer that ignores padding. Packed sequences are as exact, but took 1.8 to 17 times as long on a
CPU (`benchmarks/bench_models.py`).

Shape suffixes as in `records`; here also C channels, and D is the input size of a layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn

from sonosco_like.tensors import length_mask, reverse_by_length, zero_padding

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


Cell = Literal["lstm", "gru", "rnn"]
_GATES: dict[Cell, int] = {"lstm": 4, "gru": 3, "rnn": 1}


class Recurrent(nn.Module):
    """One layer in one direction; with `batch_norm` it is h_t = cell(B(W x_t), U h_{t-1}) as in Deep Speech 2.

    B normalises each unit over all real frames of the batch. Neither torch nor cuDNN can do that inside their recurrent
    kernels. But B(W x) is linear in x once its moments are known, and they follow from the mean m and covariance C of
    x: mean W m, variance diag(W C W'). So scale and shift are folded into the weights of the fast kernel, which gives
    the same numbers.

    The cell `rnn` is a ReLU recurrence (the paper clips it at 20; torch's kernel does not).
    """

    def __init__(self, cell: Cell, input_size: int, hidden_size: int, batch_norm: bool = False) -> None:
        super().__init__()
        self.cell, self.hidden_size = cell, hidden_size
        units = _GATES[cell] * hidden_size
        self.input_weight = nn.Parameter(torch.empty(units, input_size))
        self.input_bias = nn.Parameter(torch.zeros(units))
        self.recurrent_weight = nn.Parameter(torch.empty(units, hidden_size))
        self.recurrent_bias = nn.Parameter(torch.zeros(units))
        self.scale = nn.Parameter(torch.ones(units)) if batch_norm else None
        self.moments = RunningMoments(units) if batch_norm else None
        bound = 1 / math.sqrt(hidden_size)
        nn.init.uniform_(self.input_weight, -bound, bound)
        nn.init.uniform_(self.recurrent_weight, -bound, bound)

    def forward(self, frames_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        """The outputs of all frames, with arbitrary values in the padding; `frames_BTD` must be zero there."""
        frames_BTD = frames_BTD.to(self.input_weight.dtype)
        with _without_autocast_on_cpu(frames_BTD):
            return self._run(frames_BTD, *self._fold_batch_norm(frames_BTD, lengths_B))

    def _run(self, frames_BTD: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        parameters = [weight, self.recurrent_weight, bias, self.recurrent_bias]
        start = frames_BTD.new_zeros(1, frames_BTD.shape[0], self.hidden_size)
        options = (parameters, True, 1, 0.0, self.training, False, True)
        if self.cell == "lstm":
            return torch.lstm(frames_BTD, (start, start), *options)[0]
        run = torch.gru if self.cell == "gru" else torch.rnn_relu
        return run(frames_BTD, start, *options)[0]

    def _fold_batch_norm(self, frames_BTD: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(input weight, input bias) with the batch normalisation in them."""
        if self.scale is None or self.moments is None:
            return self.input_weight, self.input_bias
        mean, variance = self.moments.mean, self.moments.variance
        if self.training:
            with torch.autocast(frames_BTD.device.type, enabled=False):
                mean, variance = self._batch_moments(frames_BTD.float(), lengths_B, self.moments.sum_over_processes)
            self.moments.update(mean, variance)
        factor = self.scale * torch.rsqrt(variance + EPSILON)
        return factor[:, None] * self.input_weight, self.input_bias - factor * mean

    def _batch_moments(
        self, frames_BTD: Tensor, lengths_B: Tensor, total: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Mean and variance of W x over the real frames."""
        count = total(lengths_B.sum())
        mean_D = total(frames_BTD.sum((0, 1))) / count
        centred_ND = zero_padding(frames_BTD - mean_D, lengths_B).flatten(0, 1)
        covariance_DD = total(centred_ND.T @ centred_ND) / count
        variance = (self.input_weight @ covariance_DD * self.input_weight).sum(1)
        return self.input_weight @ mean_D, variance


class Bidirectional(nn.Module):
    """One layer in both directions; their outputs are summed, or put side by side (forward first)."""

    def __init__(
        self, cell: Cell, input_size: int, hidden_size: int, batch_norm: bool, join: Literal["sum", "concatenate"]
    ) -> None:
        super().__init__()
        self.join = join
        self.forwards = Recurrent(cell, input_size, hidden_size, batch_norm)
        self.backwards = Recurrent(cell, input_size, hidden_size, batch_norm)

    def forward(self, frames_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        """The outputs of all frames, with arbitrary values in the padding; `frames_BTD` must be zero there."""
        ahead_BTD: Tensor = self.forwards(frames_BTD, lengths_B)
        reversed_BTD = zero_padding(reverse_by_length(frames_BTD, lengths_B), lengths_B)
        back_BTD = reverse_by_length(self.backwards(reversed_BTD, lengths_B), lengths_B)
        return ahead_BTD + back_BTD if self.join == "sum" else torch.cat([ahead_BTD, back_BTD], dim=2)


class LookAhead(nn.Module):
    """A convolution over each unit's next frames, so that one direction suffices (Amodei et al. 2015, section 3.7)."""

    def __init__(self, units: int, future: int) -> None:
        super().__init__()
        self.future = future
        self.convolution = nn.Conv1d(units, units, future + 1, groups=units, bias=False)

    def forward(self, frames_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        """Each frame as a weighted sum of itself and the `future` frames after it."""
        frames_BDT = zero_padding(frames_BTD, lengths_B).transpose(1, 2)
        ahead_BDT: Tensor = self.convolution(nn.functional.pad(frames_BDT, (0, self.future)))
        return ahead_BDT.transpose(1, 2)


def _without_autocast_on_cpu(frames: Tensor) -> AbstractContextManager[Any]:
    """Turn autocast off on a CPU: oneDNN has bfloat16 kernels for few recurrent layers."""
    if frames.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        return torch.autocast("cpu", enabled=False)
    return nullcontext()

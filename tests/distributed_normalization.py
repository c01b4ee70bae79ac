"""Started by torchrun in two processes: shared batch normalisation of two halves is that of the whole."""

from __future__ import annotations

import torch
from torch import Tensor, distributed, nn

from sonosco_like.models.layers import MaskedBatchNorm, Recurrent, RunningMoments
from sonosco_like.training.processes import Processes

LENGTHS = torch.tensor([7, 5, 6, 2])


def compare(make, inputs: Tensor, processes: Processes) -> None:
    """The same layer on everything, and on this process's half."""
    torch.manual_seed(1)
    whole, half = make(), make()
    half.load_state_dict(whole.state_dict())
    processes.sync_batch_norm(half)
    assert all(module.shared for module in half.modules() if isinstance(module, RunningMoments))
    mine = slice(2 * processes.rank, 2 * processes.rank + 2)
    all_inputs, half_inputs = inputs.clone().requires_grad_(), inputs[mine].clone().requires_grad_()
    expected, found = whole(all_inputs, LENGTHS), half(half_inputs, LENGTHS[mine])
    assert torch.allclose(expected[mine], found, atol=1e-5)
    expected.square().sum().backward()
    found.square().sum().backward()
    assert torch.allclose(all_inputs.grad[mine], half_inputs.grad, atol=1e-4)
    for name, buffer in whole.named_buffers():
        assert torch.allclose(buffer, dict(half.named_buffers())[name], atol=1e-6), name


def padded(frames: Tensor) -> Tensor:
    """Zeros beyond the lengths, along dimension 1."""
    mask = torch.arange(frames.shape[1]) < LENGTHS[:, None]
    return frames * mask.reshape(*mask.shape, *[1] * (frames.dim() - 2))


class Layer(nn.Module):
    """A recurrent layer; only what is real of its output, so that both can be compared."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = Recurrent("gru", 3, 4, batch_norm=True)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Outputs, zero in the padding."""
        return self.recurrent(frames, lengths) * (torch.arange(7) < lengths[:, None])[:, :, None]


def main() -> None:
    """Compare both kinds of batch normalisation that our models have."""
    processes = Processes()
    torch.manual_seed(0)
    compare(lambda: MaskedBatchNorm(3), padded(torch.randn(4, 7, 3, 2)).transpose(1, 2).contiguous(), processes)
    compare(Layer, padded(torch.randn(4, 7, 3)), processes)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

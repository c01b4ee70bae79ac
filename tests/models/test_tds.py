"""What an encoded frame of TDS depends on."""

from __future__ import annotations

import pytest
import torch

from sonosco_like.errors import UsageError
from sonosco_like.models import TDSEncoder, TDSGroup


def test_the_receptive_field_is_what_gradients_reach():
    torch.manual_seed(0)
    groups = [TDSGroup(channels=2, blocks=1, kernel=5), TDSGroup(channels=2, blocks=2, kernel=3, stride=3)]
    encoder = TDSEncoder(groups=groups, dropout=0.0, norm_over="frame")
    encoder.build(4)
    features_BTF = torch.randn(1, 240, 4, requires_grad=True)
    encoded_BSD, _ = encoder(features_BTF, torch.tensor([240]))
    (encoded_BSD[0, 20] * torch.randn(encoded_BSD.shape[2])).sum().backward()
    reached = (features_BTF.grad[0].abs().sum(1) > 0).nonzero()
    assert int(reached.max() - reached.min()) + 1 == encoder.receptive_field


def test_convolutions_keep_frequencies_apart():
    """Only the fully connected layers mix them: the accident of 147 M parameters mixed them in every convolution."""
    encoder = TDSEncoder(groups=[TDSGroup(channels=3, blocks=0, kernel=3)], dropout=0.0, norm_over="frame")
    encoder.build(4)
    features_BTF = torch.zeros(1, 8, 4)
    features_BTF[0, :, 2] = 1.0
    maps = encoder.groups[0].convolution(features_BTF) - encoder.groups[0].convolution(torch.zeros(1, 8, 4))
    touched = maps.view(1, 4, 4, 3).abs().sum((0, 1, 3)) > 0
    assert touched.tolist() == [False, False, True, False]


def test_what_cannot_be_built_is_refused():
    with pytest.raises(UsageError, match="odd"):
        TDSGroup(kernel=4)
    with pytest.raises(UsageError, match="at least one group"):
        TDSEncoder(groups=[])

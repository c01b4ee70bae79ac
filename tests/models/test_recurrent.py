"""Recurrent layers against torch's on packed sequences, batch normalisation against its definition."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sonosco_like.models.layers import Bidirectional, LookAhead, MaskedBatchNorm, Recurrent
from sonosco_like.tensors import length_mask, zero_padding

LENGTHS = torch.tensor([7, 11, 2])


def frames() -> torch.Tensor:
    torch.manual_seed(0)
    return zero_padding(torch.randn(3, 11, 5), LENGTHS)


def packed(layer: nn.RNNBase, frames_BTD: torch.Tensor) -> torch.Tensor:
    sequence = pack_padded_sequence(frames_BTD, LENGTHS, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(layer(sequence)[0], batch_first=True)[0]


@pytest.mark.parametrize(("cell", "kind"), [("lstm", nn.LSTM), ("gru", nn.GRU)])
def test_both_directions_equal_torchs_on_packed_sequences(cell, kind):
    ours = Bidirectional(cell, 5, 6, batch_norm=False, join="concatenate")
    theirs = kind(5, 6, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for layer, end in ((ours.forwards, ""), (ours.backwards, "_reverse")):
            layer.input_weight.copy_(getattr(theirs, f"weight_ih_l0{end}"))
            layer.recurrent_weight.copy_(getattr(theirs, f"weight_hh_l0{end}"))
            layer.input_bias.copy_(getattr(theirs, f"bias_ih_l0{end}"))
            layer.recurrent_bias.copy_(getattr(theirs, f"bias_hh_l0{end}"))
    got_BTD = zero_padding(ours(frames(), LENGTHS), LENGTHS)
    torch.testing.assert_close(got_BTD, packed(theirs, frames()))


@pytest.mark.parametrize(("cell", "kind"), [("lstm", nn.LSTM), ("gru", nn.GRU), ("rnn", nn.RNN)])
def test_folded_batch_norm_is_batch_norm_of_the_input_term(cell, kind):
    """The reference normalises W x over all real frames, then runs torch's layer with the identity as input weight."""
    layer = Recurrent(cell, 5, 6, batch_norm=True)
    nn.init.normal_(layer.scale)
    nn.init.normal_(layer.input_bias)
    real_BT = length_mask(LENGTHS, 11)
    term_NG = frames()[real_BT] @ layer.input_weight.T
    norm = nn.BatchNorm1d(term_NG.shape[1])
    with torch.no_grad():
        norm.weight.copy_(layer.scale)
        norm.bias.copy_(layer.input_bias)
    normed_BTG = torch.zeros(3, 11, term_NG.shape[1])
    normed_BTG[real_BT] = norm(term_NG)
    options = {"nonlinearity": "relu"} if cell == "rnn" else {}
    reference = kind(term_NG.shape[1], 6, batch_first=True, **options)
    with torch.no_grad():
        reference.weight_ih_l0.copy_(torch.eye(term_NG.shape[1]))
        reference.bias_ih_l0.zero_()
        reference.weight_hh_l0.copy_(layer.recurrent_weight)
        reference.bias_hh_l0.copy_(layer.recurrent_bias)
    expected_BTD = packed(reference, normed_BTG)
    torch.testing.assert_close(zero_padding(layer(frames(), LENGTHS), LENGTHS), expected_BTD, atol=1e-5, rtol=1e-5)


def test_moments_seen_in_training_are_used_in_evaluation():
    layer = Bidirectional("gru", 5, 6, batch_norm=True, join="sum")
    for _ in range(200):
        trained_BTD = layer.train()(frames(), LENGTHS)
    torch.testing.assert_close(layer.eval()(frames(), LENGTHS), trained_BTD, atol=1e-4, rtol=1e-4)


def test_masked_batch_norm_is_batch_norm_of_the_real_frames():
    maps_BCTF = torch.randn(3, 4, 11, 2)
    real_BT = length_mask(LENGTHS, 11)
    normed_BCTF = MaskedBatchNorm(4)(maps_BCTF, LENGTHS)
    expected_NC = nn.BatchNorm1d(4)(maps_BCTF.permute(0, 2, 3, 1)[real_BT].flatten(0, 1))
    torch.testing.assert_close(
        normed_BCTF.permute(0, 2, 3, 1)[real_BT].flatten(0, 1), expected_NC, atol=1e-5, rtol=1e-5
    )


def test_look_ahead_sees_exactly_so_many_frames_of_the_future():
    layer = LookAhead(5, future=3)
    frames_BTD = frames().requires_grad_()
    layer(frames_BTD, LENGTHS)[1, 4].sum().backward()
    seen_T = frames_BTD.grad[1].abs().sum(1) > 0
    assert seen_T.nonzero().flatten().tolist() == [4, 5, 6, 7]

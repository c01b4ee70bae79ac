"""Relative attention against its definition, and why the blocks are our own."""

from __future__ import annotations

import torch

from sonosco_like.models.conformer import RelativeAttention, relative_positions, shift_relative
from sonosco_like.torchaudio_import import import_torchaudio


def test_shifting_puts_the_score_of_each_distance_at_its_position():
    frames = 5
    by_distance = torch.arange(frames - 1, -frames, -1.0).expand(2, 3, frames, -1)
    expected = torch.arange(frames)[:, None] - torch.arange(frames)
    assert torch.equal(shift_relative(by_distance), expected.float().expand(2, 3, -1, -1))


def test_attention_is_that_of_transformer_xl_written_out():
    torch.manual_seed(0)
    attention = RelativeAttention(8, heads=2, dropout=0.0)
    torch.nn.init.normal_(attention.content_bias)
    torch.nn.init.normal_(attention.position_bias)
    frames_SD, size = torch.randn(6, 8), 4
    positions_PD = relative_positions(6, 8, frames_SD)
    got = attention(frames_SD[None], positions_PD, torch.ones(1, 6, dtype=torch.bool))[0]
    query, key, value = attention.query_key_value(frames_SD).chunk(3, dim=1)
    projected = attention.position(positions_PD)
    seen = torch.zeros(6, 8)
    for head in range(2):
        part = slice(head * size, (head + 1) * size)
        for row in range(6):
            content = key[:, part] @ (query[row, part] + attention.content_bias[head, 0])
            distance = torch.stack([projected[5 - (row - column), part] for column in range(6)])
            place = distance @ (query[row, part] + attention.position_bias[head, 0])
            seen[row, part] = ((content + place) / size**0.5).softmax(0) @ value[:, part]
    torch.testing.assert_close(got, attention.output(seen), atol=1e-5, rtol=1e-5)


def test_positions_tell_distances_apart_and_their_sign():
    positions_PD = relative_positions(50, 16, torch.zeros(1))
    distances = torch.cdist(positions_PD, positions_PD) + torch.eye(99)
    assert distances.min() > 0.05
    assert torch.equal(positions_PD[49, 0::2], torch.zeros(8))


def test_torchaudios_conformer_reads_padding_which_is_why_ours_is_not_it():
    """If this fails, torchaudio has learned to mask its convolutions, and the decision may be looked at again."""
    torch.manual_seed(0)
    import_torchaudio()
    from torchaudio.models import Conformer

    theirs = Conformer(input_dim=8, num_heads=2, ffn_dim=16, num_layers=1, depthwise_conv_kernel_size=5).eval()
    frames_BTD = torch.randn(2, 12, 8)
    together = theirs(frames_BTD, torch.tensor([12, 7]))[0][1, :7]
    alone = theirs(frames_BTD[1:, :7], torch.tensor([7]))[0][0]
    assert (together - alone).abs().max() > 1e-3

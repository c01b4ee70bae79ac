"""Attention against its definitions."""

from __future__ import annotations

import pytest
import torch

from sonosco_like.errors import UsageError
from sonosco_like.models import Attention
from sonosco_like.models.attention import Memory, advance_probabilities
from sonosco_like.serialization import dumps, loads

LENGTHS = torch.tensor([6, 4])


def built(**fields) -> tuple[Attention, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    attention = Attention(size=8, location_kernel=3, location_channels=2, **fields)
    attention.build(5, 12)
    return attention, torch.randn(2, 5), torch.randn(2, 6, 12)


def asked(attention, query_BQ, frames_BSD, last_BHS=None):
    memory = attention.make_memory(frames_BSD, LENGTHS)
    last_BHS = attention.first_weights(memory) if last_BHS is None else last_BHS
    return attention(query_BQ, memory, last_BHS)


def test_dot_attention_is_the_inner_product_of_two_tanh_layers():
    attention, query_BQ, frames_BSD = built(kind="dot")
    context_BD, weights_BHS = asked(attention, query_BQ, frames_BSD)
    scores_S = attention.key(frames_BSD[1, :4]).tanh() @ attention.query(query_BQ[1]).tanh() / 8**0.5
    torch.testing.assert_close(weights_BHS[1, 0, :4], scores_S.softmax(0))
    torch.testing.assert_close(context_BD[1], scores_S.softmax(0) @ frames_BSD[1, :4])


def test_mlp_attention_is_additive():
    attention, query_BQ, frames_BSD = built(kind="mlp")
    weights_BHS = asked(attention, query_BQ, frames_BSD)[1]
    hidden_SA = (attention.key(frames_BSD[0]) + attention.query(query_BQ[0])).tanh()
    torch.testing.assert_close(weights_BHS[0, 0], (hidden_SA @ attention.energy[0]).softmax(0))


def test_location_attention_knows_where_it_looked_last():
    attention, query_BQ, frames_BSD = built(kind="location")
    same_BSD = frames_BSD[:, :1].expand(-1, 6, -1)  # content says nothing
    last_BHS = torch.zeros(2, 1, 6)
    last_BHS[:, :, 2] = 1.0
    weights_S = asked(attention, query_BQ, same_BSD, last_BHS)[1][0, 0]
    near, far = weights_S[1:4], weights_S[[0, 4, 5]]
    assert far.max() - far.min() < 1e-6
    assert (near - far[0]).abs().min() > 1e-4


def test_each_head_looks_elsewhere_and_reads_its_own_part():
    attention, query_BQ, frames_BSD = built(kind="mlp", heads=2)
    context_BD, weights_BHS = asked(attention, query_BQ, frames_BSD)
    assert weights_BHS.shape == (2, 2, 6)
    assert not torch.allclose(weights_BHS[:, 0], weights_BHS[:, 1])
    second_BE = weights_BHS[:, 1, None] @ attention.value(frames_BSD)[:, :, 6:]
    torch.testing.assert_close(context_BD[:, 6:], second_BE[:, 0])


def test_heads_that_do_not_divide_the_frames_are_refused():
    with pytest.raises(UsageError, match="5 heads"):
        Attention(size=10, heads=5).build(5, 12)


def test_beams_that_change_places_within_an_utterance_share_their_frames():
    frames = torch.randn(2, 1, 6, 3)
    beams = Memory.of_utterances(frames, frames, LENGTHS).select(torch.tensor([0, 0, 1, 1]))
    assert beams.select(torch.tensor([1, 0, 3, 3])) is beams
    moved = beams.select(torch.tensor([2, 0]))
    assert torch.equal(moved.keys_NHSA, frames[[1, 0]])
    assert moved.mask_NS.sum(1).tolist() == [4, 6]


@pytest.mark.parametrize("frames_per_label", [0.5, 2.0, 7.0])
def test_frames_per_label_are_the_mean_of_the_expected_advance(frames_per_label):
    advance_K = advance_probabilities(frames_per_label)
    assert advance_K.sum() == pytest.approx(1.0)
    assert float((advance_K * torch.arange(len(advance_K))).sum()) == pytest.approx(frames_per_label, rel=0.02)


def test_attention_with_frames_per_label_walks_through_frames_that_say_nothing():
    attention, query_BQ, _ = built(kind="dot", frames_per_label=2.0)
    memory = attention.make_memory(torch.zeros(2, 40, 12), torch.tensor([40, 40]))
    weights_BHS, places = attention.first_weights(memory), []
    for _ in range(6):
        _, weights_BHS = attention(query_BQ, memory, weights_BHS)
        places.append(float((weights_BHS[0, 0].detach() * torch.arange(40)).sum()))
    torch.testing.assert_close(torch.tensor(places), torch.arange(2.0, 14.0, 2.0), atol=0.3, rtol=0)


def test_no_frames_per_label_are_refused():
    with pytest.raises(UsageError, match="more than 0"):
        Attention(frames_per_label=0.0)


@pytest.mark.parametrize("attention", ["{class: Attention, size: 4, pace: 3.0}", "{size: 4, pace: 3.0}"])
def test_a_file_that_says_pace_is_still_read(attention):
    speller = loads(f"{{class: Speller, attention: {attention}}}")
    assert (speller.attention.size, speller.attention.frames_per_label) == (4, 3.0)
    assert "class: Attention@2\n" in dumps(speller)
    assert loads(dumps(speller)).attention.frames_per_label == 3.0


@pytest.mark.parametrize("name", ["", "class: Attention, ", "class: Attention@2, "])
def test_a_config_of_today_may_leave_out_the_version(name):
    assert loads(f"{{class: Speller, attention: {{{name}frames_per_label: 3.0}}}}").attention.frames_per_label == 3.0

"""Lengths and padding."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.tensors import reduced_lengths, reverse_by_length, stack_neighbours, zero_padding

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def frames_of(lengths_B: list[int]) -> torch.Tensor:
    return torch.arange(len(lengths_B) * 9 * 2, dtype=torch.float32).view(len(lengths_B), 9, 2) + 1


@given(lengths)
def test_reversing_twice_gives_the_real_frames_back(lengths_B):
    frames_BTD, lengths_tensor = frames_of(lengths_B), torch.tensor(lengths_B)
    backwards_BTD = reverse_by_length(frames_BTD, lengths_tensor)
    again_BTD = reverse_by_length(backwards_BTD, lengths_tensor)
    for row, length in enumerate(lengths_B):
        assert torch.equal(backwards_BTD[row, :length], frames_BTD[row, :length].flip(0))
        assert torch.equal(again_BTD[row, :length], frames_BTD[row, :length])


@given(lengths, st.integers(1, 4))
def test_stacking_joins_neighbours_and_counts_an_incomplete_group(lengths_B, factor):
    lengths_tensor = torch.tensor(lengths_B)
    frames_BTD = zero_padding(frames_of(lengths_B), lengths_tensor)
    stacked_BTD, stacked_lengths_B = stack_neighbours(frames_BTD, lengths_tensor, factor)
    for row, length in enumerate(lengths_B):
        assert stacked_lengths_B[row] == -(-length // factor)
        flat = stacked_BTD[row].reshape(-1, 2)
        assert torch.equal(flat[:length], frames_BTD[row, :length])
        assert flat[length:].abs().sum() == 0


@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 5))
def test_reducing_twice_is_reducing_by_the_product(length, first, second):
    twice = reduced_lengths(reduced_lengths(torch.tensor([length]), first), second)
    assert torch.equal(twice, reduced_lengths(torch.tensor([length]), first * second))


def test_padding_is_zero_even_where_it_was_not_a_number():
    frames_BTD = torch.full((1, 3, 2), float("nan"))
    frames_BTD[0, 0] = 1.0
    assert zero_padding(frames_BTD, torch.tensor([1])).tolist() == [[[1, 1], [0, 0], [0, 0]]]

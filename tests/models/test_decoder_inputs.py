"""Replacing decoder inputs: exactly the share that was asked for (Sonosco replaced half of all tokens at 0.01)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.errors import UsageError
from sonosco_like.models import KeyValueDecoder, Speller
from sonosco_like.models.attention import positions_to_replace, prepend_start, replace_at_random
from sonosco_like.records import START


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.floats(0, 1), st.integers(0, 2**31))
def test_as_many_labels_are_chosen_as_the_share_says(lengths, share, seed):
    torch.manual_seed(seed)
    chosen_BU = positions_to_replace(torch.tensor(lengths), 12, share)
    assert abs(int(chosen_BU.sum()) - share * sum(lengths)) <= 1
    for row, length in enumerate(lengths):
        assert not chosen_BU[row, length:].any(), "padding was chosen"


def test_the_expected_share_is_exact_even_when_it_is_less_than_one_label():
    torch.manual_seed(0)
    counts = [int(positions_to_replace(torch.tensor([7, 3]), 8, 0.01).sum()) for _ in range(4000)]
    assert set(counts) == {0, 1}
    assert sum(counts) / (10 * len(counts)) == pytest.approx(0.01, abs=0.0015)


def test_every_label_is_as_likely_to_be_chosen():
    torch.manual_seed(0)
    total_BU = sum(positions_to_replace(torch.tensor([5, 2]), 5, 0.3).float() for _ in range(3000)) / 3000
    expected_BU = torch.tensor([[0.3] * 5, [0.3] * 2 + [0.0] * 3])
    torch.testing.assert_close(total_BU, expected_BU, atol=0.03, rtol=0)


def test_random_sampling_replaces_its_share_by_ordinary_symbols():
    torch.manual_seed(0)
    labels_BU = torch.zeros(50, 40, dtype=torch.int64)
    replaced_BU = replace_at_random(labels_BU, torch.full((50,), 40), 0.1, vocabulary_size=9)
    assert int((replaced_BU != labels_BU).sum()) == 200
    assert set(replaced_BU.unique().tolist()) == {0, 4, 5, 6, 7, 8}
    assert replace_at_random(labels_BU, torch.full((50,), 40), 0.0, vocabulary_size=9) is labels_BU


def test_inputs_begin_with_start():
    assert prepend_start(torch.tensor([[5, 6]])).tolist() == [[START, 5, 6]]


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_scheduled_sampling_feeds_the_speller_its_own_labels_in_training_only(monkeypatch, share):
    torch.manual_seed(0)
    speller = Speller(hidden_size=8, embedding_size=4, scheduled_sampling=share)
    speller.build(6, 10)
    sampled = []
    monkeypatch.setattr(Speller, "_sample_labels", lambda self, seen: sampled.append(1) or torch.full((4,), 9))
    fed = []
    speller.cells[0].register_forward_pre_hook(lambda module, inputs: fed.append(inputs[0][:, :4].detach()))
    labels_BU = torch.full((4, 8), 5)
    arguments = (torch.randn(4, 7, 6), torch.full((4,), 7), labels_BU, torch.full((4,), 8))
    speller.train()(*arguments)
    own = torch.stack([(inputs == speller.embedding.weight[9]).all(1) for inputs in fed])
    assert int(own.sum()) == 32 * share
    assert not own[0].any(), "START was replaced"
    sampled.clear()
    speller.eval()(*arguments)
    assert not sampled


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_outside_zero_and_one_is_refused(share):
    with pytest.raises(UsageError, match="between 0 and 1"):
        Speller(scheduled_sampling=share)
    with pytest.raises(UsageError, match="between 0 and 1"):
        KeyValueDecoder(random_sampling=share)

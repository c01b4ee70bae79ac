"""Soft window pre-training."""

from __future__ import annotations

import pytest
import torch

from sonosco_like.errors import UsageError
from sonosco_like.models import KeyValueDecoder
from sonosco_like.models.attention import soft_window
from sonosco_like.serialization import dumps, loads


def test_the_window_peaks_on_the_diagonal_of_each_utterance():
    window_BUS = soft_window(torch.tensor([20, 8]), torch.tensor([9, 3]), (10, 20), sigma=2.0)
    assert window_BUS.shape == (2, 10, 20)
    assert window_BUS[0].argmax(-1).tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
    assert window_BUS[1, :4].argmax(-1).tolist() == [0, 2, 4, 6]


def test_the_window_is_a_gaussian_of_the_given_width():
    window_S = soft_window(torch.tensor([21]), torch.tensor([0]), (1, 21), sigma=3.0)[0, 0]
    distance_S = torch.arange(21) - 10.0
    torch.testing.assert_close(window_S, -distance_S.square() / 18)


@pytest.mark.parametrize("name", ["tds-attention", "las-location"])
def test_attention_follows_the_window_in_training_until_it_is_turned_off(name, make_model, make_batch):
    model = make_model(name)
    model.attention_decoder.window_sigma = 0.3
    batch = make_batch([84], [6])
    diagonal = soft_window(torch.tensor([21]), torch.tensor([6]), (7, 21), 0.3).argmax(-1)[0]
    on = model.train()(batch).attention_BHUS[0, 0]
    assert torch.equal(on.argmax(-1), diagonal)
    assert on.max(-1).values.min() > 0.4
    model.attention_decoder.soft_window = False
    off = model(batch).attention_BHUS[0, 0]
    assert off.max() < 0.3
    model.attention_decoder.soft_window = True
    torch.testing.assert_close(model.eval()(batch).attention_BHUS[0, 0].max(), off.max(), atol=0.1, rtol=0)


def test_turning_the_window_off_is_remembered():
    decoder = KeyValueDecoder(size=8, window_sigma=4.0)
    decoder.soft_window = False
    assert loads(dumps(decoder)).soft_window is False
    assert "soft_window" not in dumps(decoder, state=False)


def test_a_window_without_width_is_refused():
    with pytest.raises(UsageError, match="more than 0"):
        KeyValueDecoder(window_sigma=0.0)

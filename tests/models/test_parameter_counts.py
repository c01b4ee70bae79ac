"""Weights of every model at the papers' sizes, against the papers' figures or the arithmetic in the docstrings."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sonosco_like.models import LAS, TDS, Conformer, DeepSpeech2, DeepSpeech2Encoder

MILLION = 1e6


@pytest.fixture(autouse=True)
def _without_memory():
    """Weights have shapes but no storage."""
    with torch.device("meta"):
        yield


def count(*modules: nn.Module) -> float:
    """Parameters in millions."""
    return sum(parameter.numel() for module in modules for parameter in module.parameters()) / MILLION


def test_las_has_the_weights_of_the_paper():
    model = LAS.paper(vocabulary_size=32)
    assert count(model.encoder) == pytest.approx(8.5, abs=0.05)
    assert count(model) == pytest.approx(14.8, abs=0.05)
    assert model.frame_reduction == 8


def test_tds_has_the_weights_and_the_receptive_field_of_the_paper():
    model = TDS.paper(vocabulary_size=10_000)
    assert count(model.encoder, model.attention_decoder.key_value) == pytest.approx(36.5, abs=0.05)
    assert model.encoder.receptive_field == 1421
    assert model.encoder.output_size == 1440
    assert model.frame_reduction == 8


def test_deepspeech2_has_the_weights_of_the_paper():
    assert count(DeepSpeech2.paper(vocabulary_size=29)) == pytest.approx(41.2, abs=0.05)
    largest = DeepSpeech2Encoder(cell="rnn", hidden_size=1760, layers=7)
    assert count(DeepSpeech2(vocabulary_size=29, features=161, encoder=largest)) == pytest.approx(85.5, abs=0.05)


@pytest.mark.parametrize(("size", "millions"), [("S", 8.64), ("M", 27.2), ("L", 114.8)])
def test_conformer_encoders_have_the_weights_of_the_arithmetic(size, millions):
    encoder = Conformer.paper(vocabulary_size=1000, size=size).encoder
    assert count(encoder) == pytest.approx(millions, rel=0.012)


@pytest.mark.parametrize("kind", [LAS, TDS, DeepSpeech2, Conformer])
def test_small_presets_have_one_to_five_million_weights(kind):
    assert 1 < count(kind.small(vocabulary_size=32, features=40)) < 5

"""Features inside a graph are those of the data room, also for utterances of different lengths in one batch."""

from __future__ import annotations

import pytest
import torch

from sonosco_like.data.features import MFCC, LinearSpectrogram, LogMel
from sonosco_like.data.normalization import GlobalNormalization, UtteranceNormalization
from sonosco_like.data.pretrained_features import Waveform, WhisperLogMel
from sonosco_like.data.torchaudio_transforms import TorchaudioFeatures
from sonosco_like.errors import UsageError
from sonosco_like.export.front import Front, make_normalization, make_transform

EXTRACTORS = {
    "log-mel": LogMel(mels=40, high_frequency=-400.0),
    "log-mel-kaldi-scale": LogMel(mels=24, snip_edges=True, scale=32768.0, remove_offset=False),
    "log-mel-8-khz": LogMel(sample_rate=8000, mels=23, window="hamming", step_seconds=0.0125),
    "mfcc": MFCC(),
    "linear": LinearSpectrogram(),
    "waveform": Waveform(),
    "waveform-as-it-is": Waveform(normalize=False),
    "whisper": WhisperLogMel(),
    "whisper-padded": WhisperLogMel(padded_seconds=1.0),
}
LENGTHS = (16000, 12345, 1001, 450, 90)


def fitted() -> GlobalNormalization:
    normalization = GlobalNormalization()
    normalization.fit([5 + torch.randn(50, 40) * torch.arange(1, 41)])
    return normalization


NORMALIZATIONS = {
    "none": lambda: None,
    "utterance": UtteranceNormalization,
    "whole-matrix": lambda: UtteranceNormalization(per_feature=False),
    "mean-only": lambda: UtteranceNormalization(variance=False),
    "variance-only": lambda: UtteranceNormalization(mean=False),
    "global": fitted,
}


def padded(waveforms):
    """A batch with noise, not zeros, in its padding: nothing may depend on it."""
    batch = torch.randn(len(waveforms), max(map(len, waveforms)))
    for row, each in enumerate(waveforms):
        batch[row, : len(each)] = each
    return batch, torch.tensor([len(each) for each in waveforms])


def largest_difference(extractor, normalization, waveforms) -> float:
    front = Front(make_transform(extractor), make_normalization(normalization))
    features_BTF, lengths_B = front(*padded(waveforms))
    expected = extractor(waveforms)
    if normalization is not None:
        expected = [normalization(each) for each in expected]
    assert lengths_B.tolist() == [len(each) for each in expected]
    for row, length in enumerate(lengths_B.tolist()):
        assert not features_BTF[row, length:].any()
    pairs = zip(features_BTF, expected, strict=True)
    return max(float((found[: len(each)] - each).abs().max()) for found, each in pairs)


@pytest.mark.parametrize("name", EXTRACTORS)
def test_a_batch_of_unequal_lengths_has_the_features_of_each_utterance_alone(name):
    torch.manual_seed(1)
    waveforms = [0.1 * torch.randn(length) for length in LENGTHS]
    assert largest_difference(EXTRACTORS[name], None, waveforms) < 3e-3


@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_normalization_sees_only_the_frames_of_its_utterance(name):
    torch.manual_seed(1)
    waveforms = [0.1 * torch.randn(length) for length in LENGTHS[:3]]
    assert largest_difference(EXTRACTORS["log-mel"], NORMALIZATIONS[name](), waveforms) < 1e-3


def test_silence_and_a_constant_offset_are_no_trouble():
    waveforms = [torch.zeros(8000), 0.5 + 0.01 * torch.randn(8000)]
    assert largest_difference(EXTRACTORS["log-mel"], None, waveforms) < 0.02


def test_features_without_a_form_in_the_graph_are_refused_with_the_way_out():
    with pytest.raises(UsageError, match=r"TorchaudioFeatures cannot be a part(.|\n)*--input features"):
        make_transform(TorchaudioFeatures(transform="Spectrogram"))

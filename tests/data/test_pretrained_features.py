"""The features of pretrained encoders: the values of the reference implementation, refused where they would change."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sonosco_like.data import AudioDataset
from sonosco_like.data.augment import SpecAugment
from sonosco_like.data.pretrained_features import Waveform, WhisperLogMel
from sonosco_like.errors import ConfigError, DataError, UsageError
from sonosco_like.serialization import dumps, loads


def speech(samples: int, seed: int = 0) -> torch.Tensor:
    """Noise that swells, with an offset, a pause at the end and a spectrum that falls."""
    generator = torch.Generator().manual_seed(seed)
    noise_N = torch.randn(samples, generator=generator).cumsum(0) * 0.01
    loudness_N = torch.linspace(0.001, 1.0, samples).square() * (torch.arange(samples) < 0.9 * samples)
    return (noise_N * loudness_N + 0.02).float()


@pytest.fixture(scope="module")
def whisper():
    from foreign_weights import transformers

    return transformers().WhisperFeatureExtractor


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("samples", [201, 4000, 16001, 33333])
def test_whisper_log_mel_has_the_values_of_the_reference(whisper, mels, samples):
    waveform_N = speech(samples)
    expected = whisper(feature_size=mels)(waveform_N.numpy(), sampling_rate=16000, padding="do_not_pad")
    got_TF = WhisperLogMel(mels=mels)([waveform_N])[0]
    np.testing.assert_allclose(got_TF.numpy(), expected["input_features"][0].T, rtol=0, atol=2e-5)


def test_whisper_log_mel_fills_up_to_thirty_seconds_as_whisper_does(whisper):
    waveform_N = speech(20000)
    expected = whisper()(waveform_N.numpy(), sampling_rate=16000)["input_features"][0]
    extractor = WhisperLogMel(padded_seconds=30)
    got_TF = extractor([waveform_N])[0]
    assert got_TF.shape == (3000, 80) == (extractor.frames(1.25), extractor.size)
    np.testing.assert_allclose(got_TF.numpy(), expected.T, rtol=0, atol=2e-5)


@pytest.mark.parametrize("level", [1.0, 1e-3])
def test_a_waveform_is_normalized_as_by_the_reference(level):
    from foreign_weights import transformers

    waveform_N = speech(5000) * level
    reference = transformers().Wav2Vec2FeatureExtractor(do_normalize=True)
    expected = reference(waveform_N.numpy(), sampling_rate=16000)["input_values"][0]
    got_TF = Waveform()([waveform_N])[0]
    assert got_TF.shape == (5000, 1)
    np.testing.assert_allclose(got_TF[:, 0].numpy(), expected, atol=1e-5)


def test_a_waveform_that_is_not_normalized_is_the_samples_in_memory_of_their_own():
    waveform_N = speech(100)
    got_TF = Waveform(normalize=False)([waveform_N])[0]
    assert torch.equal(got_TF[:, 0], waveform_N)
    got_TF += 1
    assert not torch.equal(got_TF[:, 0], waveform_N)


@pytest.mark.parametrize("extractor", [Waveform(), WhisperLogMel(), WhisperLogMel(padded_seconds=1)])
@pytest.mark.parametrize("samples", [1, 159, 200, 201, 320, 16000, 20001])
def test_any_audio_gives_the_promised_number_of_frames(extractor, samples):
    got_TF = extractor([speech(samples)])[0]
    assert got_TF.shape == (extractor.frames(samples / 16000), extractor.size)
    assert got_TF.dtype == torch.float32
    assert got_TF.isfinite().all()


@pytest.mark.parametrize("extractor", [Waveform(), WhisperLogMel()])
def test_the_neighbours_in_a_batch_change_nothing_and_silence_is_finite(extractor):
    together = extractor([speech(5000), torch.zeros(3000), speech(700, seed=1)])
    assert torch.equal(together[2], extractor([speech(700, seed=1)])[0])
    assert together[1].isfinite().all()
    assert dumps(loads(dumps(extractor), type(extractor))) == dumps(extractor)


def test_what_is_no_waveform_is_refused():
    for extractor in (Waveform(), WhisperLogMel()):
        with pytest.raises(DataError, match="one channel"):
            extractor([torch.zeros(2, 100)])


def test_other_sizes_are_refused():
    with pytest.raises(UsageError, match="`sample_rate` of 16000, got 8000"):
        WhisperLogMel(sample_rate=8000)
    with pytest.raises(UsageError, match="`mels` must be from 1"):
        WhisperLogMel(mels=0)


@pytest.mark.parametrize("features", ["{class: Waveform}", "{class: WhisperLogMel}"])
def test_the_default_normalization_is_refused_because_it_would_change_the_values(features):
    with pytest.raises(ConfigError, match=r"Set `normalization: null` in the dataset"):
        loads(f"{{class: AudioDataset, manifest: a.jsonl, features: {features}}}", AudioDataset)
    loads(f"{{class: AudioDataset, manifest: a.jsonl, features: {features}, normalization: null}}", AudioDataset)


def test_masks_of_spectrograms_are_refused_for_samples():
    with pytest.raises(UsageError, match="time_mask_share"):
        AudioDataset(manifest="a.jsonl", features=Waveform(), normalization=None, feature_augmentations=[SpecAugment()])

"""torchaudio's transforms by name: its own values, right lengths, and bits that depend on the utterance alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from signals import RATE, voice

from sonosco_like.data import AudioDataset
from sonosco_like.data.augment import utterance_random
from sonosco_like.data.torchaudio_transforms import TorchaudioFeatures, TorchaudioMasking
from sonosco_like.errors import ConfigError, DataError, UsageError
from sonosco_like.serialization import dumps, loads
from sonosco_like.torchaudio_import import import_torchaudio

MELS = {"n_fft": 400, "hop_length": 160, "n_mels": 40}
KINDS = {
    "spectrogram": {"transform": "Spectrogram", "options": {"n_fft": 320, "hop_length": 160, "power": 1.0}},
    "odd window": {"transform": "Spectrogram", "options": {"n_fft": 401, "pad": 3}},
    "mel": {"transform": "MelSpectrogram", "options": MELS},
    "slaney": {"options": {**MELS, "norm": "slaney", "mel_scale": "slaney", "window_fn": "hamming_window"}},
    "not centred": {"options": {**MELS, "center": False}},
    "mfcc": {"transform": "MFCC", "options": {"n_mfcc": 13, "melkwargs": MELS}},
    "lfcc": {"transform": "LFCC", "options": {"n_lfcc": 20, "speckwargs": {"n_fft": 400, "hop_length": 160}}},
}


@pytest.fixture(params=KINDS)
def features(request) -> TorchaudioFeatures:
    return TorchaudioFeatures(**KINDS[request.param])


@pytest.mark.parametrize("samples", [1, 7, 199, 200, 201, 399, 400, 401, 559, 560, 16000, 23456])
def test_there_are_as_many_frames_as_said(features, samples):
    (features_TF,) = features([voice(samples / RATE)[:samples]])
    assert features_TF.shape == (features.frames(samples / RATE), features.size)
    assert features_TF.dtype == torch.float32
    assert features_TF.is_contiguous()
    assert features_TF.isfinite().all()


def test_an_utterance_has_the_same_bits_alone_and_among_others(features):
    waveforms = [voice(seconds, 100 + 50 * seconds) for seconds in (0.3, 1.7, 0.9, 0.02)]
    for alone, together in zip(waveforms, features(waveforms), strict=True):
        assert torch.equal(features([alone])[0], together)


def test_the_values_are_torchaudios():
    transforms = import_torchaudio().transforms
    samples_N = voice(1.0)
    expected_FT = transforms.MelSpectrogram(sample_rate=16000, **MELS)(samples_N).clamp(min=1e-10).log()
    assert torch.equal(TorchaudioFeatures(options=MELS)([samples_N])[0], expected_FT.T)
    assert torch.equal(
        TorchaudioFeatures(options=MELS, log=False)([samples_N])[0].clamp(min=1e-10).log(), expected_FT.T
    )
    mfcc = transforms.MFCC(sample_rate=16000, n_mfcc=13, melkwargs=MELS)(samples_N)
    assert torch.equal(TorchaudioFeatures(**KINDS["mfcc"])([samples_N])[0], mfcc.T)


def test_they_come_back_from_a_file_as_they_were(features):
    again = loads(dumps(features))
    assert dumps(again) == dumps(features)
    assert torch.equal(again([voice(0.5)])[0], features([voice(0.5)])[0])


def test_batches_are_those_of_single_utterances(features, corpus: Path):
    data = AudioDataset(manifest=corpus, features=features)
    batch = data.batch([3, 1, 2])
    assert batch is not None
    for row, index in enumerate([3, 1, 2]):
        alone = data.batch([index])
        assert alone is not None
        size = int(batch.feature_lengths_B[row])
        assert torch.equal(batch.features_BTF[row, :size], alone.features_BTF[0])
        assert not batch.features_BTF[row, size:].any()
        assert size == features.frames(data.utterances[index].duration)


WRONG = {
    "unknown option": ({"options": {"n_mel": 40}}, "has no option 'n_mel'; did you mean 'n_mels'"),
    "nested": ({"transform": "MFCC", "options": {"melkwargs": {"n_mell": 3}}}, "did you mean 'n_mels'"),
    "nested value": ({"transform": "MFCC", "options": {"melkwargs": 3}}, "`melkwargs` must be a mapping"),
    "sample rate": ({"options": {"sample_rate": 8000}}, "`sample_rate` is a field beside `options`"),
    "window": ({"options": {"window_fn": "hanning_window"}}, "did you mean 'hann_window'"),
    "value": ({"options": {"n_mels": "many"}}, "torchaudio refuses the options of MelSpectrogram"),
    "long window": ({"options": {"win_length": 4000}}, "win_length <= n_fft"),
    "no feature": ({"options": {"n_mels": 0}}, "give no feature"),
    "complex": ({"transform": "Spectrogram", "options": {"power": None}}, "`power` must be a number"),
    "not listed": ({"transform": "GriffinLim"}, "`transform` must be one of Spectrogram, MelSpectrogram, MFCC, LFCC"),
    "attribute": ({"transform": "torch"}, "`transform` must be one of"),
    "rate": ({"sample_rate": 0}, "`sample_rate` must be positive"),
}


@pytest.mark.parametrize(("fields", "message"), WRONG.values(), ids=WRONG.keys())
@pytest.mark.filterwarnings("ignore:At least one mel filterbank")
def test_wrong_settings_are_refused_when_they_are_made(fields, message):
    with pytest.raises(UsageError, match=message):
        TorchaudioFeatures(**fields)


def test_a_file_gets_the_line_of_a_wrong_option():
    with pytest.raises(ConfigError, match=r"2: .*did you mean 'n_mels'"):
        loads("features:\n  {class: TorchaudioFeatures, options: {n_mel: 40}}", expected=dict[str, TorchaudioFeatures])


@pytest.mark.parametrize("shape", [(0,), (2, 100), ()])
def test_what_is_no_waveform_is_a_data_error(shape, features):
    with pytest.raises(DataError, match="a waveform of one channel"):
        features([torch.zeros(shape)])


def test_masks_hide_bands_or_times_and_leave_the_global_generator_alone():
    features_TF = torch.ones(200, 40)
    before = torch.get_rng_state()
    bands = TorchaudioMasking(options={"freq_mask_param": 20}, count=3, mask_value=-1.0)
    times = TorchaudioMasking(transform="TimeMasking", options={"time_mask_param": 50, "p": 0.2})
    hidden = np.zeros(2)
    for number in range(50):
        random = utterance_random(0, 0, str(number))
        band_TF, time_TF = bands(features_TF, random), times(features_TF, random)
        assert set(band_TF.unique().tolist()) <= {1.0, -1.0}
        assert torch.equal(band_TF, band_TF[:1].expand_as(band_TF))  # whole bands
        assert torch.equal(time_TF, time_TF[:, :1].expand_as(time_TF))  # whole frames
        assert int((time_TF[:, 0] == 0).sum()) <= 0.2 * 200
        hidden += [float((band_TF == -1).any()), float((time_TF == 0).any())]
    assert (hidden > 40).all()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"options": {"time_mask_param": 3}}, "FrequencyMasking has no option 'time_mask_param'"),
        ({"options": {}}, "torchaudio refuses the options of FrequencyMasking"),
        ({"options": {"freq_mask_param": -3}}, "must not be negative"),
        ({"transform": "TimeStretch"}, "`transform` must be one of FrequencyMasking, TimeMasking"),
        ({"options": {"freq_mask_param": 3}, "count": 0}, "`count` must be at least 1"),
    ],
)
def test_wrong_settings_of_masks_are_refused(fields, message):
    with pytest.raises(UsageError, match=message):
        TorchaudioMasking(**fields)

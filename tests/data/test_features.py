"""Features: the values of the tools they follow, and bits that depend on the utterance alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.data.audio import load_audio
from sonosco_like.data.features import MFCC, FeatureExtractor, LinearSpectrogram, LogMel, reflect_pad
from sonosco_like.errors import ConfigError, DataError, UsageError
from sonosco_like.serialization import dumps, loads
from sonosco_like.torchaudio_import import import_torchaudio

DIGITS = Path(__file__).parents[2].parent / "shared" / "data" / "digits60"
KALDI_WINDOW = {"hann": "hanning"}


@pytest.fixture(scope="module")
def kaldi():
    import_torchaudio()
    import torchaudio.compliance.kaldi

    return torchaudio.compliance.kaldi


def speechlike(samples: int, seed: int = 0) -> torch.Tensor:
    """A buzz that glides and swells, with noise, an offset and a pause: loud and soft parts at all frequencies."""
    random = np.random.default_rng(seed)
    time_N = np.arange(samples) / 16000
    phase_N = 2 * np.pi * (120 * time_N + 15 * np.sin(3 * time_N))
    buzz_N = sum(np.sin(harmonic * phase_N) / harmonic for harmonic in range(1, 30))
    loudness_N = np.abs(np.sin(2 * time_N)) + 0.01
    samples_N = 0.1 * loudness_N * buzz_N + 0.003 * random.standard_normal(samples) + 0.02
    return torch.from_numpy(samples_N.astype(np.float32))


def kaldi_options(extractor: LogMel) -> dict[str, object]:
    return {
        "dither": 0.0,
        "num_mel_bins": extractor.mels,
        "snip_edges": extractor.snip_edges,
        "window_type": KALDI_WINDOW.get(extractor.window, extractor.window),
        "preemphasis_coefficient": extractor.preemphasis,
        "remove_dc_offset": extractor.remove_offset,
        "low_freq": extractor.low_frequency,
        "high_freq": extractor.high_frequency,
        "sample_frequency": float(extractor.sample_rate),
        "frame_length": 1000 * extractor.window_seconds,
        "frame_shift": 1000 * extractor.step_seconds,
    }


@pytest.mark.parametrize("window", ["povey", "hann", "hamming", "blackman", "rectangular"])
@pytest.mark.parametrize("snip_edges", [False, True])
@pytest.mark.parametrize("preemphasis", [0.97, 0.0])
@pytest.mark.parametrize("remove_offset", [True, False])
def test_log_mel_has_the_values_of_kaldi(kaldi, window, snip_edges, preemphasis, remove_offset):
    extractor = LogMel(
        window=window, snip_edges=snip_edges, preemphasis=preemphasis, remove_offset=remove_offset, mels=40
    )
    samples_N = speechlike(60001)  # more than one block of frames
    expected_TF = kaldi.fbank(samples_N[None].double(), **kaldi_options(extractor)).float()
    torch.testing.assert_close(extractor([samples_N])[0], expected_TF, atol=2e-4, rtol=0)


@pytest.mark.parametrize(
    "settings",
    [
        {"sample_rate": 8000, "mels": 23},
        {"mels": 64, "low_frequency": 0.0, "high_frequency": -400.0},
        {"mels": 80, "high_frequency": 7600.0},
        {"mels": 30, "window_seconds": 0.032, "step_seconds": 0.0125},
        {"sample_rate": 22050, "mels": 40},
        {"mels": 4},
    ],
)
@pytest.mark.parametrize("snip_edges", [False, True])
def test_log_mel_has_the_values_of_kaldi_at_other_settings(kaldi, settings, snip_edges):
    extractor = LogMel(snip_edges=snip_edges, **settings)
    samples_N = speechlike(20000)
    expected_TF = kaldi.fbank(samples_N[None].double(), **kaldi_options(extractor)).float()
    torch.testing.assert_close(extractor([samples_N])[0], expected_TF, atol=2e-4, rtol=0)


@pytest.mark.parametrize("snip_edges", [False, True])
@pytest.mark.parametrize("samples", [130, 320, 400, 401, 30000])
def test_log_mel_has_the_values_of_kaldi_native_fbank(snip_edges, samples):
    knf = pytest.importorskip("kaldi_native_fbank")
    options = knf.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = snip_edges
    options.mel_opts.num_bins = 80
    native = knf.OnlineFbank(options)
    samples_N = speechlike(samples) * 32768
    native.accept_waveform(16000, samples_N.numpy())
    native.input_finished()
    expected_TF = [native.get_frame(index) for index in range(native.num_frames_ready)]
    features_TF = LogMel(snip_edges=snip_edges, scale=32768)([samples_N / 32768])[0]
    if not expected_TF:  # Kaldi makes no frame of less than a window, we make one
        assert snip_edges
        assert features_TF.shape == (1, 80)
    else:
        np.testing.assert_allclose(features_TF.numpy(), np.stack(expected_TF), atol=1e-3)


@pytest.mark.parametrize("snip_edges", [False, True])
@pytest.mark.parametrize(("mels", "coefficients", "lifter"), [(23, 13, 22.0), (40, 40, 22.0), (30, 20, 0.0)])
def test_mfcc_has_the_values_of_kaldi(kaldi, snip_edges, mels, coefficients, lifter):
    extractor = MFCC(mels=mels, coefficients=coefficients, lifter=lifter, snip_edges=snip_edges)
    samples_N = speechlike(30000)
    expected_TF = kaldi.mfcc(
        samples_N[None].double(), num_ceps=coefficients, cepstral_lifter=lifter, **kaldi_options(extractor)
    ).float()
    torch.testing.assert_close(extractor([samples_N])[0], expected_TF, atol=1e-3, rtol=0)


def test_linear_spectrogram_has_161_bins_and_the_values_of_sonosco():
    samples_N = speechlike(50000)
    window = torch.hamming_window(320, periodic=False)
    stft = torch.stft(samples_N.double(), 320, 160, window=window.double(), center=True, return_complex=True)
    features_TF = LinearSpectrogram()([samples_N])[0]
    assert features_TF.shape[1] == 161
    torch.testing.assert_close(features_TF, stft.abs().log1p().T.float(), atol=1e-5, rtol=0)


def test_a_tone_is_loudest_in_its_own_band():
    time_N = torch.arange(16000) / 16000
    tone_N = 0.5 * torch.sin(2 * torch.pi * 1000 * time_N)
    assert LinearSpectrogram()([tone_N])[0].mean(dim=0).argmax() == 20  # 50 Hz apart
    mel_of_1000_hertz = 1127 * np.log1p(1000 / 700)
    edges = np.linspace(1127 * np.log1p(20 / 700), 1127 * np.log1p(8000 / 700), 82)
    nearest = np.abs(edges[1:-1] - mel_of_1000_hertz).argmin()
    assert LogMel()([tone_N])[0].mean(dim=0).argmax() == nearest


EXTRACTORS = [
    LogMel(),
    LogMel(snip_edges=True, mels=40),
    MFCC(),
    LinearSpectrogram(),
    LinearSpectrogram(sample_rate=8000),
]
each_extractor = pytest.mark.parametrize("extractor", EXTRACTORS, ids=lambda extractor: type(extractor).__name__)


@each_extractor
def test_bits_do_not_depend_on_the_neighbours(extractor):
    waveforms = [speechlike(samples, seed=samples) for samples in (47000, 16000, 999, 1, 90000, 3000)]
    together = extractor(waveforms)
    for waveform_N, features_TF in zip(waveforms, together, strict=True):
        assert features_TF.dtype == torch.float32
        assert torch.equal(extractor([waveform_N])[0], features_TF)
    for expected_TF, features_TF in zip(together, reversed(extractor(waveforms[::-1])), strict=True):
        assert torch.equal(expected_TF, features_TF)


@each_extractor
def test_bits_do_not_depend_on_the_number_of_threads(extractor):
    waveforms = [speechlike(samples, seed=samples) for samples in (240000, 16000, 1500, 700)]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = extractor(waveforms)
        torch.set_num_threads(2)
        found = extractor(waveforms)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(expected, found, strict=True))


def test_blocks_leave_no_seam():
    samples_N = speechlike(160 * 1000)
    extractor = LogMel(snip_edges=True)
    whole_TF = extractor([samples_N])[0]
    later_TF = extractor([samples_N[160 * 100 :]])[0]
    torch.testing.assert_close(whole_TF[100:], later_TF, atol=1e-5, rtol=0)


@each_extractor
@given(samples=st.integers(1, 2000))
def test_any_audio_gives_the_promised_number_of_frames(extractor, samples):
    features_TF = extractor([speechlike(samples)])[0]
    assert features_TF.shape == (extractor.frames(samples / extractor.sample_rate), extractor.size)
    assert len(features_TF) >= 1
    assert features_TF.isfinite().all()


def test_frame_shift_is_the_time_between_frames():
    assert LogMel().frame_shift == 0.010
    assert LogMel(sample_rate=22050, mels=40, step_seconds=0.0101).frame_shift == 222 / 22050
    extractor = LogMel()
    assert extractor.frames(7.0) - extractor.frames(6.0) == round(1 / extractor.frame_shift)


def test_digital_silence_is_finite():
    for extractor in EXTRACTORS:
        assert extractor([torch.zeros(8000)])[0].isfinite().all()


@pytest.mark.parametrize("wrong", [torch.zeros(0), torch.zeros(2, 100), torch.tensor(1.0)])
def test_what_is_no_waveform_is_refused(wrong):
    with pytest.raises(DataError, match=r"one channel with at least one sample, got a tensor of shape"):
        LogMel()([wrong])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mels": 0}, "`mels` must be at least 1"),
        ({"mels": 300}, "mel bands are narrower"),
        ({"sample_rate": 0}, "`sample_rate` must be positive"),
        ({"step_seconds": 0.1}, "between 0 and `window_seconds`"),
        ({"step_seconds": 1e-5}, "less than one sample"),
        ({"window": "kaiser"}, "one of povey, hann"),
        ({"low_frequency": 9000.0}, "within 0 and 8000 Hz"),
        ({"high_frequency": 9000.0}, "within 0 and 8000 Hz"),
        ({"preemphasis": -1.0}, "`preemphasis` from 0 to 1"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        LogMel(**settings)


def test_more_cepstra_than_bands_are_refused():
    with pytest.raises(UsageError, match=r"from 1 to the number of mel bands \(23\)"):
        MFCC(coefficients=24)


@each_extractor
def test_an_extractor_comes_back_from_its_text(extractor):
    again = loads(dumps(extractor), FeatureExtractor)
    samples_N = speechlike(5000)
    assert type(again) is type(extractor)
    assert torch.equal(again([samples_N])[0], extractor([samples_N])[0])


def test_wrong_settings_in_a_file_are_a_problem_of_the_file():
    with pytest.raises(ConfigError, match="mels"):
        loads("class: LogMel\nmels: 0\n", FeatureExtractor)


def test_real_speech_has_the_values_of_kaldi(kaldi):
    if not DIGITS.exists():
        pytest.skip("the shared recordings are not here")
    rows = (DIGITS / "val.jsonl").read_text().splitlines()[:5]
    extractor = LogMel()
    for row in map(json.loads, rows):
        samples_N = load_audio(DIGITS / row["audio_filepath"], 16000)
        expected_TF = kaldi.fbank(samples_N[None], **kaldi_options(extractor))
        torch.testing.assert_close(extractor([samples_N])[0], expected_TF, atol=5e-3, rtol=0)
        assert (extractor([samples_N])[0] - expected_TF).abs().mean() < 1e-5


@given(size=st.integers(1, 30), before=st.integers(0, 70), after=st.integers(0, 70), repeat_edge=st.booleans())
def test_mirrored_edges_are_those_of_numpy(size, before, after, repeat_edge):
    samples_N = np.arange(size, dtype=np.float32)
    expected_N = np.pad(samples_N, (before, after), mode="symmetric" if repeat_edge else "reflect")
    np.testing.assert_array_equal(reflect_pad(samples_N, before, after, repeat_edge), expected_N)

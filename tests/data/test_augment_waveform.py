"""Speed, tempo, pitch, gain, shift, white noise and librosa's effects do what they say, by measure."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from signals import RATE, level_db, pitch_of, snr_db, voice

from sonosco_like.data.augment import (
    Gain,
    LibrosaEffect,
    PitchShift,
    SpeedPerturbation,
    TempoPerturbation,
    TimeShift,
    WhiteNoise,
    utterance_random,
)
from sonosco_like.errors import UsageError


def random(number: int = 0) -> np.random.Generator:
    return utterance_random(0, 0, str(number))


def test_the_measure_of_pitch_is_right():
    for pitch in (90.0, 150.0, 233.3):
        assert pitch_of(voice(1.0, pitch)) == pytest.approx(pitch, rel=0.002)


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0, 1.1, 1.37, 2.0])
def test_speed_changes_length_and_pitch(factor):
    samples_N = voice(2.0, 150.0)
    result_N = SpeedPerturbation(factors=(factor,))(samples_N, RATE, random())
    assert len(result_N) == round(len(samples_N) / factor)
    assert pitch_of(result_N) == pytest.approx(150.0 * factor, rel=0.005)
    assert level_db(result_N) == pytest.approx(level_db(samples_N), abs=0.2)


def test_speed_keeps_the_waveform_of_a_tone():
    time_N = torch.arange(16000, dtype=torch.float64) / RATE
    result_N = SpeedPerturbation(factors=(0.9,))(torch.sin(2 * torch.pi * 1000 * time_N), RATE, random())
    expected_N = torch.sin(2 * torch.pi * 900 * torch.arange(len(result_N), dtype=torch.float64) / RATE)
    assert (result_N - expected_N)[500:-500].abs().max() < 1e-4


def test_speed_draws_each_of_its_factors():
    samples_N = voice(0.5)
    lengths = [len(SpeedPerturbation()(samples_N, RATE, random(number))) for number in range(300)]
    sizes, counts = np.unique(lengths, return_counts=True)
    assert sizes.tolist() == [round(8000 / 1.1), 8000, round(8000 / 0.9)]
    assert counts.min() > 70


@pytest.mark.parametrize("factor", [0.7, 0.9, 1.0, 1.15, 1.5])
@pytest.mark.parametrize("rate", [8000, 16000])
def test_tempo_changes_length_but_not_pitch(factor, rate):
    samples_N = voice(2.0, 150.0, rate)
    result_N = TempoPerturbation(factor=(factor, factor))(samples_N, rate, random())
    assert len(result_N) == round(len(samples_N) / factor)
    assert pitch_of(result_N, rate) == pytest.approx(150.0, rel=0.005)
    assert level_db(result_N) == pytest.approx(level_db(samples_N), abs=0.3)


def test_tempo_leaves_no_clicks_at_the_joints():
    samples_N = voice(2.0, 150.0)
    result_N = TempoPerturbation(factor=(0.8, 0.8))(samples_N, RATE, random())
    assert result_N.diff().abs().max() < 1.05 * samples_N.diff().abs().max()


def test_tempo_1_changes_nothing():
    samples_N = voice(1.0)
    result_N = TempoPerturbation(factor=(1.0, 1.0))(samples_N, RATE, random())
    torch.testing.assert_close(result_N, samples_N, atol=1e-6, rtol=0)


def test_tempo_keeps_the_order_of_events():
    samples_N = torch.cat([voice(0.5, 100.0), voice(0.5, 200.0), voice(0.5, 300.0)])
    result_N = TempoPerturbation(factor=(0.75, 0.75))(samples_N, RATE, random())
    third = len(result_N) // 3
    pitches = [pitch_of(result_N[start : start + third]) for start in (0, third, 2 * third)]
    assert pitches == pytest.approx([100.0, 200.0, 300.0], rel=0.01)


@pytest.mark.parametrize("semitones", [-4.0, -1.0, 0.0, 2.0, 5.0])
def test_pitch_moves_and_length_stays(semitones):
    samples_N = voice(2.0, 150.0)
    result_N = PitchShift(semitones=(semitones, semitones))(samples_N, RATE, random())
    assert len(result_N) == len(samples_N)
    assert pitch_of(result_N) == pytest.approx(150.0 * 2 ** (semitones / 12), rel=0.005)
    assert level_db(result_N) == pytest.approx(level_db(samples_N), abs=0.5)


@given(samples=st.integers(1, 5000), factor=st.floats(0.4, 2.5))
def test_lengths_are_right_for_any_audio(samples, factor):
    samples_N = torch.from_numpy(np.random.default_rng(samples).standard_normal(samples).astype(np.float32))
    expected = max(1, round(samples / factor))
    assert len(SpeedPerturbation(factors=(factor,))(samples_N, RATE, random())) == expected
    assert len(TempoPerturbation(factor=(factor, factor))(samples_N, RATE, random())) == expected
    semitones = 12 * np.log2(factor)
    assert len(PitchShift(semitones=(semitones, semitones))(samples_N, RATE, random())) == samples


@pytest.mark.parametrize("decibels", [-20.0, 0.0, 6.0])
def test_gain_reaches_its_level(decibels):
    samples_N = voice(0.5)
    result_N = Gain(decibels=(decibels, decibels))(samples_N, RATE, random())
    assert level_db(result_N) - level_db(samples_N) == pytest.approx(decibels, abs=1e-4)


def test_gain_draws_from_its_whole_range():
    drawn = [level_db(Gain(decibels=(-10.0, 5.0))(torch.ones(4), RATE, random(number))) for number in range(500)]
    assert min(drawn) == pytest.approx(-10, abs=0.2)
    assert max(drawn) == pytest.approx(5, abs=0.2)


def test_shift_moves_whole_samples_and_fills_with_silence():
    samples_N = torch.arange(1.0, 8001.0)
    shifts = set()
    for number in range(200):
        result_N = TimeShift(seconds=0.1)(samples_N, RATE, random(number))
        assert len(result_N) == len(samples_N)
        shift = int((result_N == 0).sum())
        assert shift <= 1600
        later = shift == 0 or result_N[0] == 0
        expected_N = samples_N.roll(shift if later else -shift)
        expected_N[slice(0, shift) if later else slice(len(samples_N) - shift, None)] = 0
        assert torch.equal(result_N, expected_N)
        shifts.add(shift if later else -shift)
    assert min(shifts) < -1400
    assert max(shifts) > 1400


def test_a_shift_past_the_end_leaves_silence():
    shift = TimeShift(seconds=100.0)
    assert all(len(shift(torch.ones(3), RATE, random(number))) == 3 for number in range(20))


@pytest.mark.parametrize("decibels", [-5.0, 10.0, 40.0])
def test_white_noise_reaches_its_ratio_and_is_white(decibels):
    samples_N = voice(2.0)
    result_N = WhiteNoise(snr_db=(decibels, decibels))(samples_N, RATE, random())
    assert snr_db(samples_N, result_N) == pytest.approx(decibels, abs=0.05)
    spectrum = torch.fft.rfft(result_N - samples_N).abs().square()[:16000].reshape(8, -1).mean(dim=1)
    assert spectrum.max() / spectrum.min() < 1.3


def test_noise_leaves_silence_silent():
    assert not WhiteNoise()(torch.zeros(100), RATE, random()).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: SpeedPerturbation(factors=()),
        lambda: SpeedPerturbation(factors=(0.9, 0.0)),
        lambda: TempoPerturbation(factor=(1.1, 0.9)),
        lambda: TempoPerturbation(factor=(0.0, 1.0)),
        lambda: PitchShift(semitones=(1.0, -1.0)),
        lambda: Gain(decibels=(0.0, float("inf"))),
        lambda: TimeShift(seconds=-1.0),
        lambda: WhiteNoise(snr_db=(float("nan"), 3.0)),
    ],
)
def test_impossible_ranges_are_refused(make):
    with pytest.raises(UsageError, match=r"^`(factors|factor|semitones|decibels|seconds|snr_db)` must"):
        make()


@pytest.mark.parametrize("rate", [0.7, 1.0, 1.3])
def test_librosas_time_stretch_changes_length_and_not_pitch(rate):
    samples_N = voice(2.0, 150.0)
    result_N = LibrosaEffect(effect="time_stretch", amount=(rate, rate))(samples_N, RATE, random())
    assert len(result_N) == round(len(samples_N) / rate)
    assert pitch_of(result_N) == pytest.approx(150.0, rel=0.01)


@pytest.mark.parametrize("semitones", [-4.0, 3.0])
def test_librosas_pitch_shift_changes_pitch_and_not_length(semitones):
    samples_N = voice(2.0, 150.0)
    result_N = LibrosaEffect(effect="pitch_shift", amount=(semitones, semitones))(samples_N, RATE, random())
    assert len(result_N) == len(samples_N)
    assert pitch_of(result_N) == pytest.approx(150.0 * 2 ** (semitones / 12), rel=0.01)


def test_librosas_effect_is_librosas_own_function():
    librosa = pytest.importorskip("librosa")
    samples_N = voice(1.0, 150.0)
    effect = LibrosaEffect(effect="pitch_shift", amount=(2.5, 2.5), options={"n_fft": 1024, "bins_per_octave": 24})
    expected_N = librosa.effects.pitch_shift(samples_N.numpy(), sr=RATE, n_steps=2.5, n_fft=1024, bins_per_octave=24)
    assert np.array_equal(effect(samples_N, RATE, random()).numpy(), expected_N)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"effect": "time_strech", "amount": (1.0, 2.0)}, "did you mean 'time_stretch'"),
        ({"effect": "time_stretch", "amount": (0.0, 2.0)}, "`amount` must be two numbers greater than 0"),
        ({"effect": "pitch_shift", "amount": (2.0, -2.0)}, "the smaller one first"),
        ({"effect": "pitch_shift", "amount": (1.0, 2.0), "options": {"n_ftt": 3}}, "did you mean 'n_fft'"),
        ({"effect": "time_stretch", "amount": (1.0, 2.0), "options": {"hop_length": 0}}, "librosa refuses the options"),
    ],
)
def test_wrong_settings_of_librosas_effect_are_refused_when_it_is_made(fields, message):
    with pytest.raises(UsageError, match=message):
        LibrosaEffect(**fields)


def test_librosa_is_imported_only_where_it_is_used(run_python):
    code = (
        "import sys, sonosco_like.catalog; print([name for name in ('librosa', 'torchaudio') if name in sys.modules])"
    )
    assert run_python(code).stdout.strip() == "[]"

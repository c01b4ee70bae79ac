"""What every augmentation promises (randomness of the utterance alone, probability, purity, files), and SpecAugment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st
from signals import RATE, voice

from sonosco_like.data.augment import (
    Augmentation,
    Gain,
    LibrosaEffect,
    PitchShift,
    SpecAugment,
    SpeedPerturbation,
    TempoPerturbation,
    TimeShift,
    WaveformAugmentation,
    WhiteNoise,
    time_warp,
    utterance_random,
)
from sonosco_like.data.augment_recordings import NoiseFiles, Reverberation
from sonosco_like.data.torchaudio_transforms import TorchaudioMasking
from sonosco_like.errors import UsageError
from sonosco_like.serialization import dumps, loads

KINDS = {
    "speed": lambda folder: SpeedPerturbation(factors=(0.9, 1.1)),
    "tempo": lambda folder: TempoPerturbation(),
    "pitch": lambda folder: PitchShift(),
    "gain": lambda folder: Gain(),
    "shift": lambda folder: TimeShift(),
    "white": lambda folder: WhiteNoise(),
    "noise": lambda folder: NoiseFiles(files=folder),
    "room": lambda folder: Reverberation(),
    "response": lambda folder: Reverberation(responses=[folder / "a.wav", folder / "b.wav"]),
    "spec": lambda folder: SpecAugment(time_warp=5),
    "librosa stretch": lambda folder: LibrosaEffect(effect="time_stretch", amount=(0.8, 1.2)),
    "librosa pitch": lambda folder: LibrosaEffect(effect="pitch_shift", amount=(-2.0, 2.0), options={"n_fft": 512}),
    "torchaudio bands": lambda folder: TorchaudioMasking(options={"freq_mask_param": 20}, count=2),
    "torchaudio times": lambda folder: TorchaudioMasking(transform="TimeMasking", options={"time_mask_param": 40}),
}


@pytest.fixture(scope="session")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sounds")
    random = np.random.default_rng(0)
    soundfile.write(folder / "a.wav", 0.1 * random.standard_normal(40000), RATE)
    soundfile.write(folder / "b.wav", np.exp(-np.arange(2000) / 300) * random.uniform(-1, 1, 2000), RATE)
    return folder


@pytest.fixture(params=KINDS)
def augmentation(request, sounds) -> Augmentation:
    return KINDS[request.param](sounds)


def given_input(augmentation: Augmentation) -> torch.Tensor:
    if isinstance(augmentation, WaveformAugmentation):
        return voice(1.3)
    return torch.from_numpy(np.random.default_rng(1).standard_normal((150, 40)).astype(np.float32))


def run(augmentation: Augmentation, value: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
    if isinstance(augmentation, WaveformAugmentation):
        return augmentation(value, RATE, random)
    return augmentation(value, random)


def test_the_utterance_decides_its_randomness_whatever_the_process(run_python):
    code = (
        "from sonosco_like.data.augment import utterance_random\n"
        "print(utterance_random(3, 5, 'wav/ünï_07').integers(0, 2**63, 4).tolist())"
    )
    elsewhere = run_python(code, env={"PYTHONHASHSEED": "1234"}).stdout.strip()
    assert elsewhere == str(utterance_random(3, 5, "wav/ünï_07").integers(0, 2**63, 4).tolist())


def test_randomness_stays_what_it_was():
    drawn = utterance_random(1234, 7, "train_02_0000").integers(0, 1_000_000, 3).tolist()
    assert drawn == [741840, 600467, 690224]  # runs begun earlier must see the same augmentations when they are resumed


def test_seed_epoch_and_utterance_each_matter():
    names = [(s, e, u) for s in (0, 1, -1, 11) for e in (0, 1, 11) for u in ("", "1", "1/1", "a", "\ud800")]
    assert len({utterance_random(*name).integers(0, 2**63) for name in names}) == len(names)


def test_the_same_randomness_gives_the_same_bits_and_leaves_the_input_alone(augmentation):
    value = given_input(augmentation)
    copy = value.clone()
    first, again = (run(augmentation, value, utterance_random(0, 0, "a")) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(value, copy)
    first.zero_()
    assert torch.equal(value, copy)


def test_draws_differ_between_epochs(augmentation):
    value = given_input(augmentation)
    results = [run(augmentation, value, utterance_random(0, epoch, "a")) for epoch in range(8)]
    differing = {tuple(result.flatten()[:5000].tolist()) for result in results}
    two_choices = isinstance(augmentation, SpeedPerturbation) or getattr(augmentation, "responses", None)
    assert len(differing) >= (2 if two_choices else 6)


def test_results_are_finite_floats_of_the_same_kind(augmentation):
    value = given_input(augmentation)
    result = run(augmentation, value, utterance_random(0, 0, "a"))
    assert result.dtype == torch.float32
    assert result.ndim == value.ndim
    assert result.isfinite().all()
    assert not torch.equal(result, value)


@pytest.mark.parametrize("size", [0, 1, 2, 50])
def test_tiny_and_silent_input_is_no_problem(augmentation, size):
    value = given_input(augmentation)[:size]
    for content in (value, torch.zeros_like(value)):
        for epoch in range(5):
            result = run(augmentation, content, utterance_random(0, epoch, "a"))
            assert result.isfinite().all()
            assert len(result) >= min(size, 1)


def test_the_coin_is_drawn_first_and_always(augmentation):
    value = given_input(augmentation)
    augmentation.probability = 0.0
    random, expected = utterance_random(0, 0, "a"), utterance_random(0, 0, "a")
    assert run(augmentation, value, random) is value
    expected.random()
    assert random.integers(0, 2**63) == expected.integers(0, 2**63)


def test_the_coin_falls_as_often_as_asked():
    value = torch.ones(10)
    gain = Gain(probability=0.3, decibels=(6.0, 6.0))
    changed = sum(gain(value, RATE, utterance_random(0, 0, str(number))) is not value for number in range(3000))
    assert 0.27 < changed / 3000 < 0.33


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
def test_an_impossible_probability_is_refused(probability):
    with pytest.raises(UsageError, match="`probability` must be from 0 to 1"):
        Gain(probability=probability)


def test_bits_do_not_depend_on_the_number_of_threads(augmentation):
    value = torch.cat([given_input(augmentation)] * 4)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(run(augmentation, value, utterance_random(0, 1, "a")))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_an_augmentation_comes_back_from_its_text(augmentation):
    augmentation.probability = 0.75
    again = loads(dumps(augmentation), Augmentation)
    value = given_input(augmentation)
    for epoch in range(4):
        expected = run(augmentation, value, utterance_random(0, epoch, "a"))
        assert torch.equal(run(again, value, utterance_random(0, epoch, "a")), expected)


def random(number: int = 0) -> np.random.Generator:
    return utterance_random(0, 0, str(number))


def runs(hidden: torch.Tensor) -> list[int]:
    """Lengths of the stretches of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], hidden.int().numpy(), [0]])))
    return (edges[1::2] - edges[::2]).tolist()


@given(
    frames=st.integers(1, 300),
    size=st.integers(1, 90),
    widths=st.tuples(st.integers(0, 40), st.integers(0, 120)),
    masks=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    share=st.floats(0, 1),
    number=st.integers(0, 1000),
)
def test_masks_are_whole_bands_within_their_limits(frames, size, widths, masks, share, number):
    augmentation = SpecAugment(
        frequency_masks=masks[0], frequency_width=widths[0],
        time_masks=masks[1], time_width=widths[1], time_share=share,
    )  # fmt: skip
    features_TF = torch.ones(frames, size)
    hidden_TF = augmentation(features_TF, random(number)) == 0
    rows_T, columns_F = hidden_TF.all(dim=1), hidden_TF.all(dim=0)
    assert torch.equal(hidden_TF, rows_T[:, None] | columns_F[None, :])
    if not columns_F.all():
        assert rows_T.sum() <= masks[1] * min(widths[1], int(share * frames))
        assert len(runs(rows_T)) <= masks[1]
    if not rows_T.all():
        assert columns_F.sum() <= masks[0] * widths[0]
        assert len(runs(columns_F)) <= masks[0]


def test_widths_and_places_are_drawn_evenly():
    augmentation = SpecAugment(frequency_masks=1, frequency_width=10, time_masks=0)
    hidden_NF = torch.stack([augmentation(torch.ones(3, 40), random(number))[0] == 0 for number in range(4000)])
    widths = torch.bincount(hidden_NF.sum(dim=1), minlength=11)
    assert len(widths) == 11
    assert widths.min() > 280
    assert widths.max() < 450
    often_F = hidden_NF.float().mean(dim=0)
    assert often_F[10:30].max() / often_F[10:30].min() < 1.35


def test_a_time_mask_hides_at_most_its_share():
    augmentation = SpecAugment(frequency_masks=0, time_masks=1, time_width=100, time_share=0.2)
    hidden = [int((augmentation(torch.ones(50, 4), random(number)) == 0)[:, 0].sum()) for number in range(300)]
    assert max(hidden) == 10


def test_what_is_not_masked_is_untouched():
    features_TF = torch.from_numpy(np.random.default_rng(0).standard_normal((200, 80)).astype(np.float32)) + 100
    result_TF = SpecAugment()(features_TF, random())
    kept_TF = result_TF != 0
    assert 0.2 < kept_TF.float().mean() < 1
    assert torch.equal(result_TF[kept_TF], features_TF[kept_TF])


def test_masks_can_be_filled_with_the_mean():
    features_TF = torch.from_numpy(np.random.default_rng(0).uniform(5, 9, (200, 80)).astype(np.float32))
    result_TF = SpecAugment(fill="mean")(features_TF, random())
    changed = result_TF[result_TF != features_TF]
    assert len(changed) > 100
    torch.testing.assert_close(changed, torch.full_like(changed, float(features_TF.mean())))


@given(frames=st.integers(1, 200), widest=st.integers(1, 90), number=st.integers(0, 500))
def test_time_is_bent_without_being_torn(frames, widest, number):
    clock_TF = np.arange(frames, dtype=np.float32)[:, None].repeat(2, axis=1)
    bent_T = time_warp(clock_TF, widest, random(number))[:, 0]
    assert len(bent_T) == frames
    assert bent_T[0] == 0
    assert bent_T[-1] == frames - 1
    assert (np.diff(bent_T) > 0).all()
    assert np.abs(bent_T - clock_TF[:, 0]).max() <= widest + 1e-3


def test_time_is_bent_as_far_as_allowed_in_both_directions():
    clock_TF = np.arange(200, dtype=np.float32)[:, None]
    moved = [(time_warp(clock_TF, 30, random(number)) - clock_TF)[:, 0] for number in range(200)]
    assert min(move.min() for move in moved) < -28
    assert max(move.max() for move in moved) > 28


def test_two_speeds_meet_at_the_drawn_frame():
    bent_T = time_warp(np.arange(300, dtype=np.float32)[:, None], 40, random(1))[:, 0]
    assert len(np.unique(np.diff(bent_T).round(3))) <= 3  # before, across and after


@pytest.mark.parametrize(
    "settings",
    [{"time_masks": -1}, {"frequency_width": -1}, {"time_warp": -3}, {"time_share": 1.1}, {"time_share": -0.1}],
)
def test_impossible_masks_are_refused(settings):
    with pytest.raises(UsageError, match="must not be negative, and `time_share` must be from 0 to 1"):
        SpecAugment(**settings)


def test_an_unknown_fill_is_refused():
    with pytest.raises(UsageError, match="`fill` must be zero or mean, got 'median'"):
        SpecAugment(fill="median")

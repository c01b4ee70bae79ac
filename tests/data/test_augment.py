"""What every augmentation promises: randomness of the utterance alone, a coin, purity, and a place in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from sonosco_like.data.augment import Augmentation, WaveformAugmentation, utterance_random
from sonosco_like.data.augment_features import SpecAugment
from sonosco_like.data.augment_recordings import NoiseFiles, Reverberation
from sonosco_like.data.augment_waveform import (
    Gain,
    PitchShift,
    SpeedPerturbation,
    TempoPerturbation,
    TimeShift,
    WhiteNoise,
)
from sonosco_like.errors import UsageError
from sonosco_like.serialization import dumps, loads
from tests.data.signals import RATE, voice

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

"""Normalisation: exact statistics, safe on constant input, and no use before fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.data.normalization import GlobalNormalization, Normalization, UtteranceNormalization
from sonosco_like.errors import DataError, UsageError
from sonosco_like.serialization import dumps, load, loads, save


def features(frames: int, size: int = 5, seed: int = 0, mean: float = -7.0) -> torch.Tensor:
    random = np.random.default_rng(seed)
    scale_F = np.arange(1, size + 1)
    return torch.from_numpy((random.standard_normal((frames, size)) * scale_F + mean).astype(np.float32))


@given(frames=st.integers(2, 400), mean=st.floats(-50, 50), seed=st.integers(0, 99))
def test_utterances_come_to_mean_0_and_variance_1(frames, mean, seed):
    result_TF = UtteranceNormalization()(features(frames, seed=seed, mean=mean)).double()
    torch.testing.assert_close(result_TF.mean(dim=0), torch.zeros(5).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(result_TF.var(dim=0, unbiased=False), torch.ones(5).double(), atol=1e-4, rtol=0)


def test_mean_and_variance_are_chosen_apart():
    features_TF = features(300)
    centred_TF = UtteranceNormalization(variance=False)(features_TF)
    torch.testing.assert_close(centred_TF, features_TF - features_TF.mean(dim=0), atol=1e-4, rtol=0)
    scaled_TF = UtteranceNormalization(mean=False)(features_TF)
    torch.testing.assert_close(scaled_TF, features_TF / features_TF.std(dim=0, unbiased=False), atol=1e-4, rtol=0)


def test_one_mean_and_variance_of_the_whole_matrix():
    features_TF = features(300)
    expected_TF = (features_TF - features_TF.mean()) / features_TF.std(unbiased=False)
    torch.testing.assert_close(UtteranceNormalization(per_feature=False)(features_TF), expected_TF, atol=1e-5, rtol=0)


@pytest.mark.parametrize("value", [0.0, -15.942385, 1e6, 0.1])
@pytest.mark.parametrize("frames", [1, 777])
def test_constant_features_become_zero(value, frames):
    features_TF = torch.full((frames, 3), value)
    for normalization in (UtteranceNormalization(), UtteranceNormalization(per_feature=False)):
        assert torch.equal(normalization(features_TF), torch.zeros(frames, 3))


def test_the_input_is_left_alone():
    features_TF = features(50)
    copy_TF = features_TF.clone()
    fitted = GlobalNormalization()
    fitted.fit([features_TF])
    for normalization in (UtteranceNormalization(), UtteranceNormalization(mean=False, variance=False), fitted):
        normalization(features_TF).zero_()
        assert torch.equal(features_TF, copy_TF)


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_global_statistics_are_those_of_all_frames_at_once(lengths, seed):
    utterances = [features(frames, seed=seed + number) for number, frames in enumerate(lengths)]
    normalization = GlobalNormalization()
    normalization.fit(iter(utterances))
    frames_TF = torch.cat(utterances).double()
    torch.testing.assert_close(normalization.mean_F, frames_TF.mean(dim=0), atol=1e-10, rtol=0)
    torch.testing.assert_close(normalization.variance_F, frames_TF.var(dim=0, unbiased=False), atol=1e-9, rtol=0)
    assert normalization.frames == sum(lengths)


def test_global_variance_survives_a_large_mean():
    utterances = [features(1000, seed=seed, mean=50000.0) for seed in range(20)]
    normalization = GlobalNormalization()
    normalization.fit(utterances)
    expected_F = torch.cat(utterances).double().var(dim=0, unbiased=False)
    torch.testing.assert_close(normalization.variance_F, expected_F, rtol=1e-9, atol=0)


def test_global_normalisation_subtracts_the_mean_and_divides_by_the_deviation():
    utterances = [features(200, seed=seed) for seed in range(5)]
    normalization = GlobalNormalization()
    normalization.fit(utterances)
    together_TF = torch.cat([normalization(features_TF) for features_TF in utterances])
    torch.testing.assert_close(together_TF.mean(dim=0), torch.zeros(5), atol=1e-5, rtol=0)
    torch.testing.assert_close(together_TF.std(dim=0, unbiased=False), torch.ones(5), atol=1e-5, rtol=0)


def test_fit_replaces_what_was_fitted_before():
    normalization, fresh = GlobalNormalization(), GlobalNormalization()
    normalization.fit([features(100, size=3, mean=100.0)])
    for one in (normalization, fresh):
        one.fit([features(50)])
    assert torch.equal(normalization.mean_F, fresh.mean_F)
    assert normalization.frames == 50


def test_use_before_fit_is_refused():
    with pytest.raises(UsageError, match="no statistics yet"):
        GlobalNormalization()(features(10))


def test_fit_on_nothing_is_refused():
    with pytest.raises(UsageError, match="at least one utterance, got none"):
        GlobalNormalization().fit([])


def test_another_number_of_features_is_refused():
    normalization = GlobalNormalization()
    with pytest.raises(UsageError, match="statistics of 5 features, got an utterance of 4"):
        normalization.fit([features(10), features(10, size=4)])
    normalization.fit([features(10)])
    with pytest.raises(UsageError, match="statistics of 5 features, got an utterance of 4"):
        normalization(features(10, size=4))


@pytest.mark.parametrize("shape", [(0, 4), (3,), (1, 2, 3)])
def test_what_is_no_matrix_is_refused(shape):
    with pytest.raises(DataError, match="filled matrix"):
        UtteranceNormalization()(torch.zeros(shape))


def test_fitted_statistics_are_saved_and_restored(tmp_path):
    normalization = GlobalNormalization(variance=True)
    normalization.fit([features(100)])
    save(normalization, tmp_path / "normalization")
    again = load(tmp_path / "normalization", GlobalNormalization)
    assert again.frames == 100
    assert torch.equal(again(features(20)), normalization(features(20)))


def test_settings_come_back_from_text():
    again = loads(dumps(UtteranceNormalization(variance=False, per_feature=False)), Normalization)
    assert isinstance(again, UtteranceNormalization)
    assert (again.mean, again.variance, again.per_feature) == (True, False, False)


def test_bits_do_not_depend_on_the_number_of_threads():
    features_TF = features(3000, size=80)
    normalization = GlobalNormalization()
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            normalization.fit([features_TF, features_TF * 2])
            found.append((normalization.variance_F, normalization(features_TF), UtteranceNormalization()(features_TF)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))

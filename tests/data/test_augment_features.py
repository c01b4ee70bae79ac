"""SpecAugment masks what it should and no more, and bends time without tearing it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.data.augment import utterance_random
from sonosco_like.data.augment_features import SpecAugment, warped
from sonosco_like.errors import UsageError


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
    bent_T = warped(clock_TF, widest, random(number))[:, 0]
    assert len(bent_T) == frames
    assert bent_T[0] == 0
    assert bent_T[-1] == frames - 1
    assert (np.diff(bent_T) > 0).all()
    assert np.abs(bent_T - clock_TF[:, 0]).max() <= widest + 1e-3


def test_time_is_bent_as_far_as_allowed_in_both_directions():
    clock_TF = np.arange(200, dtype=np.float32)[:, None]
    moved = [(warped(clock_TF, 30, random(number)) - clock_TF)[:, 0] for number in range(200)]
    assert min(move.min() for move in moved) < -28
    assert max(move.max() for move in moved) > 28


def test_two_speeds_meet_at_the_drawn_frame():
    bent_T = warped(np.arange(300, dtype=np.float32)[:, None], 40, random(1))[:, 0]
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

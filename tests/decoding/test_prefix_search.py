import numpy as np
import pytest
from brute_force import collapse, every_ctc_reading, random_log_probs
from hypothesis import given, settings
from hypothesis import strategies as st

from sonosco_like.decoding.flashlight_search import flashlight_beam_search, is_installed
from sonosco_like.decoding.prefix_search import prefix_beam_search as search_batch

WIDE = 10_000


def prefix_beam_search(log_probs_SV, beam_size, **options):
    [readings] = search_batch(log_probs_SV[None], np.array([len(log_probs_SV)]), beam_size, **options)
    return readings


needs_flashlight = pytest.mark.skipif(not is_installed(), reason="flashlight-text is not installed")
cases = st.tuples(st.integers(1, 5), st.integers(2, 4), st.integers(0, 10_000), st.sampled_from([0.5, 2.0, 6.0]))


@pytest.mark.parametrize("search", [prefix_beam_search, pytest.param(flashlight_beam_search, marks=needs_flashlight)])
@settings(max_examples=40)
@given(case=cases)
def test_a_wide_beam_finds_every_reading_with_its_exact_probability(search, case):
    log_probs_SV = random_log_probs(*case)
    found = search(log_probs_SV, WIDE, threshold=1000.0, n_best=WIDE)
    expected = every_ctc_reading(log_probs_SV)
    assert len(found) == len(expected)
    for reading in found:
        assert reading.score == pytest.approx(expected[collapse(reading.path_S)], abs=1e-5)
    assert [reading.score for reading in found] == sorted((r.score for r in found), reverse=True)


@needs_flashlight
@settings(max_examples=60)
@given(
    frames=st.integers(1, 40),
    labels=st.integers(2, 12),
    seed=st.integers(0, 10_000),
    sharpness=st.sampled_from([1.0, 3.0, 8.0]),
    beam_size=st.integers(1, 20),
)
def test_both_engines_give_the_same_readings_scores_and_paths(frames, labels, seed, sharpness, beam_size):
    log_probs_SV = random_log_probs(frames, labels, seed, sharpness)
    own = prefix_beam_search(log_probs_SV, beam_size, n_best=5)
    other = flashlight_beam_search(log_probs_SV, beam_size, n_best=5)
    assert [reading.score for reading in own] == pytest.approx([reading.score for reading in other], rel=1e-9)
    assert [reading.path_S.tolist() for reading in own] == [reading.path_S.tolist() for reading in other]


@needs_flashlight
@pytest.mark.parametrize(("seed", "beam_size", "sharpness"), [(6, 3, 2.0), (113, 4, 1.0), (198, 4, 1.0), (240, 3, 1.0)])
def test_a_prefix_that_comes_back_into_the_beam_is_known_again(seed, beam_size, sharpness):
    """Found by trying: a prefix is dropped while a longer one stays, returns, and leads to the longer one again."""
    log_probs_SV = random_log_probs(14, 4, seed, sharpness)
    own = prefix_beam_search(log_probs_SV, beam_size, n_best=5)
    other = flashlight_beam_search(log_probs_SV, beam_size, n_best=5)
    assert [reading.score for reading in own] == pytest.approx([reading.score for reading in other], rel=1e-9)


@given(st.integers(1, 12), st.integers(2, 5), st.integers(0, 1000), st.integers(1, 6))
def test_no_reading_comes_twice(frames, labels, seed, beam_size):
    found = prefix_beam_search(random_log_probs(frames, labels, seed, 1.0), beam_size, n_best=99)
    assert len({collapse(reading.path_S) for reading in found}) == len(found)


def test_a_threshold_drops_what_is_far_below_the_best():
    log_probs_SV = np.log(np.array([[0.9, 0.09, 0.01]], np.float32))
    assert len(prefix_beam_search(log_probs_SV, WIDE, threshold=1000.0, n_best=9)) == 3
    assert len(prefix_beam_search(log_probs_SV, WIDE, threshold=3.0, n_best=9)) == 2


def test_no_frames_say_nothing():
    [reading] = prefix_beam_search(np.zeros((0, 3)), 4)
    assert (reading.score, reading.path_S.tolist()) == (0.0, [])


def test_impossible_frames_leave_no_reading():
    assert prefix_beam_search(np.full((2, 3), -np.inf), 4) == []


def test_of_equal_scores_the_first_labels_stay():
    """flashlight-text keeps others in every run here, whichever lie where in memory."""
    log_probs_SV = np.log(np.array([[0.4, 0.15, 0.15, 0.15, 0.15]] * 2))
    readings = prefix_beam_search(log_probs_SV, 3, n_best=3)
    assert [collapse(reading.path_S) for reading in readings] == [(), (1,), (2,)]


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    seed=st.integers(0, 10_000),
    sharpness=st.sampled_from([0.0, 1.0, 4.0]),
    beam_size=st.integers(1, 8),
)
def test_a_batch_is_searched_like_each_utterance_alone_bit_for_bit(lengths, seed, sharpness, beam_size):
    longest = max(lengths)
    rows = [random_log_probs(longest, 5, seed + i, sharpness) for i in range(len(lengths))]
    together = search_batch(np.stack(rows), np.array(lengths), beam_size, n_best=3)
    for row, length, readings in zip(rows, lengths, together, strict=True):
        alone = prefix_beam_search(row[:length], beam_size, n_best=3)
        assert [reading.score for reading in readings] == [reading.score for reading in alone]
        assert [reading.path_S.tolist() for reading in readings] == [reading.path_S.tolist() for reading in alone]

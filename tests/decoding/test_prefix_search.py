import numpy as np
import pytest
from brute_force import collapse, every_ctc_text, random_log_probs
from hypothesis import given, settings
from hypothesis import strategies as st

from sonosco_like.decoding.ctc_beam import prefix_beam_search as search_batch

WIDE = 10_000


def prefix_beam_search(log_probs_SV, beam_size, **options):
    [paths] = search_batch(log_probs_SV[None], np.array([len(log_probs_SV)]), beam_size, **options)
    return paths


cases = st.tuples(st.integers(1, 5), st.integers(2, 4), st.integers(0, 10_000), st.sampled_from([0.5, 2.0, 6.0]))


@settings(max_examples=40)
@given(case=cases)
def test_a_wide_beam_finds_every_text_with_its_exact_probability(case):
    log_probs_SV = random_log_probs(*case)
    found = prefix_beam_search(log_probs_SV, WIDE, threshold=1000.0, n_best=WIDE)
    expected = every_ctc_text(log_probs_SV)
    assert len(found) == len(expected)
    for path in found:
        assert path.score == pytest.approx(expected[collapse(path.path_S)], abs=1e-5)
    assert [path.score for path in found] == sorted((r.score for r in found), reverse=True)


@given(st.integers(1, 12), st.integers(2, 5), st.integers(0, 1000), st.integers(1, 6))
def test_no_path_comes_twice(frames, labels, seed, beam_size):
    found = prefix_beam_search(random_log_probs(frames, labels, seed, 1.0), beam_size, n_best=99)
    assert len({collapse(path.path_S) for path in found}) == len(found)


def test_a_threshold_drops_what_is_far_below_the_best():
    log_probs_SV = np.log(np.array([[0.9, 0.09, 0.01]], np.float32))
    assert len(prefix_beam_search(log_probs_SV, WIDE, threshold=1000.0, n_best=9)) == 3
    assert len(prefix_beam_search(log_probs_SV, WIDE, threshold=3.0, n_best=9)) == 2


def test_no_frames_say_nothing():
    [path] = prefix_beam_search(np.zeros((0, 3)), 4)
    assert (path.score, path.path_S.tolist()) == (0.0, [])


def test_impossible_frames_leave_no_path():
    assert prefix_beam_search(np.full((2, 3), -np.inf), 4) == []


def test_of_equal_scores_the_first_labels_stay():
    """flashlight-text keeps others in every run here, whichever lie where in memory."""
    log_probs_SV = np.log(np.array([[0.4, 0.15, 0.15, 0.15, 0.15]] * 2))
    paths = prefix_beam_search(log_probs_SV, 3, n_best=3)
    assert [collapse(path.path_S) for path in paths] == [(), (1,), (2,)]


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
    for row, length, paths in zip(rows, lengths, together, strict=True):
        alone = prefix_beam_search(row[:length], beam_size, n_best=3)
        assert [path.score for path in paths] == [path.score for path in alone]
        assert [path.path_S.tolist() for path in paths] == [path.path_S.tolist() for path in alone]

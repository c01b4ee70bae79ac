"""Whether a difference is real."""

from __future__ import annotations

import numpy as np
import pytest

from sonosco_like.edits import ErrorCounts
from sonosco_like.errors import UsageError
from sonosco_like.evaluation import Result, compare


def results(errors, words: int = 10) -> list[Result]:
    counts = [ErrorCounts(substitutions=int(each), reference_length=words) for each in errors]
    return [Result(f"u{number}", "", "", each, ErrorCounts()) for number, each in enumerate(counts)]


def test_a_recogniser_is_not_better_than_itself():
    same = results(np.arange(50) % 4)
    found = compare(same, same, "itself", 500, 0)
    assert (found.difference, found.is_real, found.p_value) == (0.0, False, 1.0)
    assert found.in_words().startswith("No real difference to itself can be seen")


def test_a_large_difference_is_real_in_both_directions():
    random = np.random.default_rng(0)
    good, bad = results(random.binomial(10, 0.1, 300)), results(random.binomial(10, 0.2, 300))
    found = compare(good, bad, "old", 500, 0)
    assert found.is_real
    assert found.difference == pytest.approx(-0.1, abs=0.02)
    assert found.p_value < 0.01
    assert "fewer word errors than old, and the difference is real" in found.in_words()
    assert "more word errors than new" in compare(bad, good, "new", 500, 0).in_words()


def test_pairing_sees_what_two_intervals_do_not():
    """Hard and easy utterances differ much more than the two recognisers, which differ in one word of each tenth."""
    random = np.random.default_rng(1)
    errors = random.integers(0, 10, 200)
    better = results(np.maximum(errors - (np.arange(200) % 10 == 0), 0))
    assert compare(better, results(errors), "old", 1000, 0).is_real
    shuffled = random.permutation(errors)
    assert not compare(better, results(shuffled), "another", 1000, 0).is_real


def test_false_alarms_are_as_rare_as_the_level_says():
    random = np.random.default_rng(3)
    pairs = [(results(random.binomial(10, 0.2, 80)), results(random.binomial(10, 0.2, 80))) for _ in range(150)]
    alarms = sum(compare(*pair, "other", 300, 0).is_real for pair in pairs)
    assert alarms / 150 <= 0.12


def test_only_what_both_have_heard_counts():
    found = compare(results([1, 1, 5]), results([1, 1]), "other", 100, 0)
    assert (found.utterances, found.wer) == (2, 0.1)


def test_other_data_is_refused():
    with pytest.raises(UsageError, match="no utterance in common"):
        compare(results([1]), [], "other", 100, 0)
    with pytest.raises(UsageError, match="The text of u0 is not the same"):
        compare(results([1]), results([1], words=11), "other", 100, 0)

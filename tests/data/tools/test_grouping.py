"""Dividing into disjoint parts, as a property of pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.data.tools.grouping import join_groups, share_out
from sonosco_like.errors import UsageError

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}


@given(st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=3), max_size=30))
def test_rows_with_a_common_key_are_in_one_group_and_groups_have_no_key_in_common(keys):
    groups = join_groups(keys)
    assert len(groups) == len(keys)
    owners: dict[int, set[int]] = {}
    for group, row in zip(groups, keys, strict=True):
        for key in row:
            owners.setdefault(key, set()).add(group)
    assert all(len(found) == 1 for found in owners.values())


def test_rows_without_a_common_key_are_not_joined():
    assert len(set(join_groups([["a"], ["b"], ["c"]]))) == 3
    assert len(set(join_groups([["a", "x"], ["b", "y"], ["c", "y"]]))) == 2


@given(
    seconds=st.dictionaries(st.text(max_size=5), st.floats(0.0, 1000.0), min_size=3, max_size=40),
    seed=st.integers(0, 100),
)
def test_each_group_gets_a_part_no_part_is_empty_and_order_does_not_matter(seconds, seed):
    parts = share_out(seconds, SHARES, seed)
    assert set(parts) == set(seconds)
    assert set(parts.values()) == set(SHARES)
    assert parts == share_out(dict(reversed(list(seconds.items()))), SHARES, seed)


def test_parts_come_near_to_their_shares():
    seconds = {f"speaker{number}": 10.0 + number % 7 for number in range(200)}
    parts = share_out(seconds, SHARES, 0)
    for part, share in SHARES.items():
        got = sum(seconds[group] for group in parts if parts[group] == part)
        assert got / sum(seconds.values()) == pytest.approx(share, abs=0.02)


def test_seeds_make_a_difference_and_zero_shares_get_nothing():
    seconds = {f"speaker{number}": 1.0 for number in range(50)}
    assert share_out(seconds, SHARES, 0) != share_out(seconds, SHARES, 1)
    assert set(share_out(seconds, {"train": 1.0, "val": 0.0}, 0).values()) == {"train"}


def test_too_few_groups_and_senseless_shares_are_refused():
    with pytest.raises(UsageError, match="at least 3 groups"):
        share_out({"a": 1.0, "b": 1.0}, SHARES, 0)
    for shares in ({"train": -1.0, "val": 2.0}, {"train": 0.0}, {"train": float("inf")}):
        with pytest.raises(UsageError, match="Shares"):
            share_out({"a": 1.0, "b": 1.0}, shares, 0)

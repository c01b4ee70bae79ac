"""Splits of a manifest, and the pure functions that divide it into disjoint parts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tones import write_rows

from sonosco_like.data.manifest import Manifest
from sonosco_like.data.tools.split import SHARES, assign_groups, join_groups, split_manifest, split_utterances
from sonosco_like.errors import DataError, UsageError
from sonosco_like.records import Utterance


def utterance(number: int, speaker: str | None, text: str) -> Utterance:
    return Utterance(f"u{number}", f"/audio/{number}.wav", 1.0 + number % 3, text, speaker)


people = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=60, max_size=100)


@given(rows=people, seed=st.integers(0, 50), by=st.sampled_from(["speaker", "text"]))
def test_parts_are_disjoint_complete_and_do_not_depend_on_the_order(rows, seed, by):
    utterances = [utterance(number, f"s{speaker}", f"text {text}") for number, (speaker, text) in enumerate(rows)]
    utterances += [utterance(1000 + number, f"x{number}", f"other {number}") for number in range(3)]
    parts = split_utterances(utterances, by, SHARES, seed)
    values = [{getattr(each, by) for each in part} for part in parts.values()]
    assert all(values)
    assert sum(map(len, values)) == len(set.union(*values))
    assert sorted(each.id for part in parts.values() for each in part) == sorted(each.id for each in utterances)
    backwards = split_utterances(utterances[::-1], by, SHARES, seed)
    assert {name: {each.id for each in part} for name, part in parts.items()} == {
        name: {each.id for each in part} for name, part in backwards.items()
    }


def test_by_both_no_speaker_and_no_text_is_shared():
    utterances = [utterance(10 * a + b, f"s{a}", f"text {a // 2} {b}") for a in range(20) for b in range(5)]
    parts = split_utterances(utterances, "both", SHARES, 0)
    for key in ("speaker", "text"):
        values = [{getattr(each, key) for each in part} for part in parts.values()]
        assert sum(map(len, values)) == len(set.union(*values))


def test_texts_that_differ_in_case_and_blanks_are_one():
    utterances = [utterance(0, None, "Yes  please"), utterance(1, None, "yes please")]
    utterances += [utterance(number, None, f"no {number}") for number in range(2, 9)]
    parts = split_utterances(utterances, "text", SHARES, 0)
    assert sum(bool({"u0", "u1"} & {each.id for each in part}) for part in parts.values()) == 1


def test_rows_without_speakers_cannot_be_split_by_speaker():
    with pytest.raises(DataError, match=r"'u0' has no speaker.*Split by text"):
        split_utterances([utterance(0, None, "a")], "speaker", SHARES, 0)
    with pytest.raises(UsageError, match="one of speaker, text, both"):
        split_utterances([utterance(0, "a", "a")], "voice", SHARES, 0)


@pytest.fixture
def source(tmp_path) -> Path:
    rows = [
        {"audio_filepath": f"wav/{n}.wav", "duration": 1.5, "text": f"t {n}", "speaker": f"s{n // 4}"}
        for n in range(80)
    ]
    return write_rows(tmp_path / "in" / "all.jsonl", rows)


def test_written_parts_point_to_the_same_audio(source, tmp_path):
    written = split_manifest(source, tmp_path / "out", seed=3)
    found = [each for path in written.values() for each in Manifest.read(path)]
    assert len(found) == 80
    assert {Path(each.audio_filepath).resolve() for each in found} == {
        (source.parent / "wav" / f"{n}.wav").resolve() for n in range(80)
    }


def test_existing_parts_are_not_written_over_without_force(source, tmp_path):
    (tmp_path / "val.jsonl").write_text("mine")
    with pytest.raises(UsageError, match="--force"):
        split_manifest(source, tmp_path)
    assert (tmp_path / "val.jsonl").read_text() == "mine"
    assert not (tmp_path / "train.jsonl").exists()
    split_manifest(source, tmp_path, force=True)
    assert len(Manifest.read(tmp_path / "val.jsonl")) == 8


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
    parts = assign_groups(seconds, SHARES, seed)
    assert set(parts) == set(seconds)
    assert set(parts.values()) == set(SHARES)
    assert parts == assign_groups(dict(reversed(list(seconds.items()))), SHARES, seed)


def test_parts_come_near_to_their_shares():
    seconds = {f"speaker{number}": 10.0 + number % 7 for number in range(200)}
    parts = assign_groups(seconds, SHARES, 0)
    for part, share in SHARES.items():
        got = sum(seconds[group] for group in parts if parts[group] == part)
        assert got / sum(seconds.values()) == pytest.approx(share, abs=0.02)


def test_seeds_make_a_difference_and_zero_shares_get_nothing():
    seconds = {f"speaker{number}": 1.0 for number in range(50)}
    assert assign_groups(seconds, SHARES, 0) != assign_groups(seconds, SHARES, 1)
    assert set(assign_groups(seconds, {"train": 1.0, "val": 0.0}, 0).values()) == {"train"}


def test_too_few_groups_and_senseless_shares_are_refused():
    with pytest.raises(UsageError, match="at least 3 groups"):
        assign_groups({"a": 1.0, "b": 1.0}, SHARES, 0)
    for shares in ({"train": -1.0, "val": 2.0}, {"train": 0.0}, {"train": float("inf")}):
        with pytest.raises(UsageError, match="Shares"):
            assign_groups({"a": 1.0, "b": 1.0}, shares, 0)

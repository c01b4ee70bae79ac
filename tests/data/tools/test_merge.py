"""Several manifests as one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tones import make_corpus, write_rows

from sonosco_like.data.manifest import Manifest
from sonosco_like.data.tools.manifests import MergeCounts, merge_manifests
from sonosco_like.errors import DataError, UsageError


def test_rows_of_all_manifests_are_there_and_their_audio_is_found(tmp_path):
    first, second = make_corpus(tmp_path / "a", [0.2, 0.3]), make_corpus(tmp_path / "b", [0.4])
    merged = merge_manifests([first, second], tmp_path / "c" / "all.jsonl")
    found = list(Manifest.read(tmp_path / "c" / "all.jsonl"))
    assert [each.duration for each in found] == [0.2, 0.3, 0.4]
    assert all(Path(each.audio_filepath).is_file() for each in found)
    assert merged == MergeCounts(rows=3, duplicates=0, renamed=1)  # wav/000 is in both
    assert [each.id for each in found] == ["wav/000", "wav/001", "wav/000#2"]


def test_the_same_audio_is_taken_once_by_whatever_path(tmp_path):
    first = make_corpus(tmp_path / "a", [0.2, 0.3])
    (tmp_path / "link").symlink_to(tmp_path / "a", target_is_directory=True)
    merged = merge_manifests([first, tmp_path / "link" / first.name], tmp_path / "all.jsonl")
    assert merged == MergeCounts(rows=2, duplicates=2, renamed=0)


def test_two_pieces_of_one_recording_stay_two(tmp_path):
    rows = [{"audio_filepath": "a.wav", "duration": 1, "text": "x", "offset": offset} for offset in (0, 1, 2)]
    merged = merge_manifests([write_rows(tmp_path / "in.jsonl", rows)], tmp_path / "all.jsonl")
    assert merged.rows == 3


def test_the_output_may_be_an_input_only_with_force(tmp_path):
    first = make_corpus(tmp_path / "a", [0.2, 0.3])
    second = make_corpus(tmp_path / "a", [0.2, 0.3, 0.4], "more.jsonl")
    with pytest.raises(UsageError, match="--force"):
        merge_manifests([first, second], first)
    merge_manifests([first, second], first, force=True)
    assert len(Manifest.read(first)) == 3


def test_nothing_to_merge_and_missing_manifests_are_errors(tmp_path):
    with pytest.raises(UsageError, match="at least one"):
        merge_manifests([], tmp_path / "all.jsonl")
    with pytest.raises(DataError, match="does not exist"):
        merge_manifests([tmp_path / "nothing.jsonl"], tmp_path / "all.jsonl")
    assert not (tmp_path / "all.jsonl").exists()

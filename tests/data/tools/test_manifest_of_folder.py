"""Manifests of folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from tones import make_corpus, write_tone

from sonosco_like.data.manifest import Manifest
from sonosco_like.data.tools.manifests import make_manifest
from sonosco_like.errors import DataError, UsageError

SHARED = Path(__file__).parents[3].parent / "shared" / "data" / "digits60"


def pair(folder: Path, name: str, text: str, seconds: float = 0.2, suffix: str = ".wav") -> None:
    write_tone(folder / f"{name}{suffix}", seconds)
    (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def test_pairs_of_any_format_become_rows(tmp_path):
    for number, suffix in enumerate((".wav", ".flac", ".ogg", ".mp3")):
        pair(tmp_path, f"r{number}", f" text\n {number} \n", 0.5, suffix)
    found = make_manifest(tmp_path, tmp_path / "manifest.jsonl")
    rows = list(Manifest.read(tmp_path / "manifest.jsonl"))
    assert found.rows == 4
    assert [row.text for row in rows] == [f"text {number}" for number in range(4)]
    assert [row.duration for row in rows] == pytest.approx([0.5] * 4, abs=0.08)
    assert [row.id for row in rows] == ["r0", "r1", "r2", "r3"]


def test_texts_may_lie_in_a_folder_of_their_own_or_in_transcripts(tmp_path):
    write_tone(tmp_path / "train" / "wav" / "one.wav", 0.2)
    (tmp_path / "train" / "txt").mkdir()
    (tmp_path / "train" / "txt" / "one.txt").write_text("one")
    write_tone(tmp_path / "books" / "7" / "1-7-0000.flac", 0.2)
    (tmp_path / "books" / "7" / "1-7.trans.txt").write_text("1-7-0000 GO ON\n1-7-0001 NO AUDIO\n")
    make_manifest(tmp_path, tmp_path / "m.jsonl")
    assert {row.id: row.text for row in Manifest.read(tmp_path / "m.jsonl")} == {
        "train/one": "one",
        "books/7/1-7-0000": "GO ON",
    }


def test_manifests_of_the_folder_are_taken_over_with_all_they_say(tmp_path):
    make_corpus(tmp_path, [0.2, 0.3])
    pair(tmp_path, "extra", "more")
    with (tmp_path / "train.jsonl").open("a") as stream:
        stream.write('{"audio_filepath": "gone.wav", "duration": 1, "text": "x"}\n')
    found = make_manifest(tmp_path, tmp_path / "all.jsonl")
    assert found.rows == 3
    assert [reason for reason in found.unreadable if "gone.wav does not exist" in reason]
    assert make_manifest(tmp_path, tmp_path / "all.jsonl", force=True).rows == 3  # its own output is no source


def test_audio_that_is_in_two_manifests_of_the_folder_is_taken_once(tmp_path):
    make_corpus(tmp_path, [0.2, 0.3], "all.jsonl")
    make_corpus(tmp_path, [0.2], "train.jsonl")
    assert make_manifest(tmp_path, tmp_path / "m.jsonl").rows == len(Manifest.read(tmp_path / "m.jsonl")) == 2


def test_speakers_come_from_the_path(tmp_path):
    for speaker in ("anna", "peter"):
        pair(tmp_path / speaker, "one", "x")
    make_manifest(tmp_path, tmp_path / "m.jsonl", speaker="^([^/]+)/")
    assert {row.speaker for row in Manifest.read(tmp_path / "m.jsonl")} == {"anna", "peter"}
    with pytest.raises(DataError, match=r"finds nothing in 'anna/one\.wav'"):
        make_manifest(tmp_path, tmp_path / "n.jsonl", speaker="(nobody)")
    for wrong, message in (("(", "cannot be read"), ("anna", "needs a group")):
        with pytest.raises(UsageError, match=message):
            make_manifest(tmp_path, tmp_path / "n.jsonl", speaker=wrong)


def test_what_is_left_out_is_said(tmp_path):
    pair(tmp_path, "good", "x")
    write_tone(tmp_path / "mute.wav", 0.2)
    pair(tmp_path, "broken", "x")
    (tmp_path / "broken.wav").write_bytes(b"RIFF but not really")
    pair(tmp_path, "empty", "x")
    write_tone(tmp_path / "empty.wav", 0.0)
    found = make_manifest(tmp_path, tmp_path / "m.jsonl")
    assert found.rows == 1
    assert found.without_text == [tmp_path / "mute.wav"]
    assert len(found.unreadable) == 2


def test_two_recordings_of_one_text_are_refused(tmp_path):
    pair(tmp_path, "one", "x")
    write_tone(tmp_path / "one.flac", 0.2)
    with pytest.raises(DataError, match="two recordings with one text"):
        make_manifest(tmp_path, tmp_path / "m.jsonl")


def test_folders_without_anything_useful_are_errors_that_help(tmp_path):
    with pytest.raises(DataError, match="no recordings"):
        make_manifest(tmp_path, tmp_path / "m.jsonl")
    write_tone(tmp_path / "a.wav", 0.2)
    with pytest.raises(DataError, match=r"has a text.*a\.txt beside a\.wav"):
        make_manifest(tmp_path, tmp_path / "m.jsonl")
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not UTF-8"):
        make_manifest(tmp_path, tmp_path / "m.jsonl")
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.wav").write_bytes(b"")
    with pytest.raises(DataError, match="can be read"):
        make_manifest(tmp_path, tmp_path / "m.jsonl")
    with pytest.raises(UsageError, match="not a folder"):
        make_manifest(tmp_path / "nothing", tmp_path / "m.jsonl")
    assert not (tmp_path / "m.jsonl").exists()


@pytest.mark.skipif(not SHARED.exists(), reason="the shared recordings are not on this machine")
def test_a_folder_with_manifests_of_real_speech_is_taken_over(tmp_path):
    found = make_manifest(SHARED, tmp_path / "all.jsonl")
    rows = Manifest.read(tmp_path / "all.jsonl")
    assert found.rows == len(rows) == 1104 + 144
    assert len({row.speaker for row in rows}) == 52
    assert found.unreadable == found.without_text == []

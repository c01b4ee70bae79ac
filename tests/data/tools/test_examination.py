"""Recordings that are not what their rows say: each is found, wherever it is."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile
from tones import write_rows, write_tone

from sonosco_like.data.manifest import Manifest
from sonosco_like.data.tools.examination import REMEDIES, examine_recordings

SECONDS = 2.0


def noise(path, seconds=SECONDS, rate=16000, **options):
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, round(seconds * rate))
    soundfile.write(path, samples, rate, **options)
    return path


def cut(path, share=0.5):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def examined(folder, *names, opening="all", **row):
    rows = [{"audio_filepath": name, "duration": SECONDS, "text": "x", "id": name, **row} for name in names]
    manifest = Manifest.read(write_rows(folder / "m.jsonl", rows))
    found = examine_recordings(manifest, opening)
    return {manifest[index].id: [fault.reason for fault in faults] for index, faults in found.faults.items()}


@pytest.fixture
def corpus(tmp_path):
    """One recording of each kind of fault, and good ones of each format."""
    for name in ("good.wav", "good.flac", "good.ogg", "good.mp3", "torn.flac", "torn.wav", "torn.mp3"):
        noise(tmp_path / name)
    for name in ("torn.flac", "torn.wav"):
        cut(tmp_path / name)
    cut(tmp_path / "torn.mp3")
    (tmp_path / "text.wav").write_text("I am no recording")
    (tmp_path / "zero.wav").write_bytes(b"")
    (tmp_path / "folder.wav").mkdir()
    noise(tmp_path / "none.wav", 0.0)
    noise(tmp_path / "short.wav", 1.0)
    noise(tmp_path / "long.wav", 3.0)
    noise(tmp_path / "low.wav", rate=4000)
    noise(tmp_path / "flac.wav", format="FLAC")
    soundfile.write(tmp_path / "silent.wav", np.zeros(32000), 16000)
    soundfile.write(tmp_path / "quiet.wav", 0.005 * np.sin(np.arange(32000)), 16000)
    soundfile.write(tmp_path / "loud.wav", np.clip(2.0 * np.sin(np.arange(32000)), -1, 1), 16000)
    soundfile.write(tmp_path / "full.wav", np.sin(np.arange(32000) / 50) * 0.998, 16000)
    return tmp_path


def test_every_fault_is_found_at_once(corpus):
    names = sorted(path.name for path in corpus.iterdir())
    assert examined(corpus, *names, "gone.wav") == {
        "flac.wav": ["wrong format"],
        "folder.wav": ["unreadable"],
        "gone.wav": ["missing file"],
        "long.wav": ["wrong duration"],
        "loud.wav": ["clipped"],
        "low.wav": ["low rate"],
        "none.wav": ["empty"],
        "quiet.wav": ["quiet"],
        "short.wav": ["ends early"],
        "silent.wav": ["silent"],
        "text.wav": ["unreadable"],
        "torn.flac": ["truncated"],
        "torn.mp3": ["truncated"],
        "torn.wav": ["ends early", "truncated"],
        "zero.wav": ["unreadable"],
    }


def test_every_kind_of_fault_has_a_remedy(corpus):
    names = sorted(path.name for path in corpus.iterdir())
    found = examined(corpus, *names, "gone.wav")
    assert {reason for reasons in found.values() for reason in reasons} <= REMEDIES.keys()


def test_a_wav_that_was_measured_after_it_was_cut_is_found_too(tmp_path):
    cut(noise(tmp_path / "torn.wav"))
    assert examined(tmp_path, "torn.wav", duration=1.0) == {"torn.wav": ["truncated"]}


def test_without_opening_anything_missing_files_are_found(corpus):
    assert examined(corpus, "torn.wav", "gone.wav", "good.wav", opening="none") == {"gone.wav": ["missing file"]}


def test_pieces_of_one_recording_need_not_fill_it(tmp_path):
    noise(tmp_path / "talk.wav", 10.0)
    pieces = [{"audio_filepath": "talk.wav", "duration": 2.0, "offset": offset, "text": "x"} for offset in (0, 3, 9)]
    manifest = Manifest.read(write_rows(tmp_path / "m.jsonl", pieces))
    found = examine_recordings(manifest, "all")
    assert {index: [fault.reason for fault in faults] for index, faults in found.faults.items()} == {2: ["ends early"]}
    assert (found.recordings, found.decoded) == (1, 1)


def test_a_sample_is_about_an_hour_from_all_of_the_manifest(tmp_path, monkeypatch):
    names = [f"{number}.wav" for number in range(40)]
    for name in names:
        write_tone(tmp_path / name, SECONDS)
    rows = [{"audio_filepath": name, "duration": SECONDS, "text": "x"} for name in names]
    manifest = Manifest.read(write_rows(tmp_path / "m.jsonl", rows))
    assert examine_recordings(manifest).decoded == 40
    monkeypatch.setattr("sonosco_like.data.tools.examination._SAMPLE_SECONDS", 20.0)
    assert examine_recordings(manifest).decoded == 10
    assert examine_recordings(manifest, "all").decoded == 40

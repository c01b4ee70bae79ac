"""Recordings of every kind as one waveform."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile
import torch

from sonosco_like.errors import DataError, UsageError
from sonosco_like.inference.audio_stream import open_recordings, read_blocks, to_waveform

RATE = 16000


def tone(seconds: float, rate: int = RATE) -> np.ndarray:
    return 0.3 * np.sin(2 * np.pi * 200 * np.arange(int(seconds * rate)) / rate)


def read(path, whole: float = 5.0) -> np.ndarray:
    return np.concatenate(list(read_blocks(path, RATE, whole)))


@pytest.mark.parametrize(("rate", "suffix"), [(16000, "wav"), (44100, "wav"), (8000, "flac"), (48000, "ogg")])
@pytest.mark.parametrize("seconds", [2.0, 23.0])
def test_any_rate_and_length_comes_as_the_same_sound(tmp_path, rate, suffix, seconds):
    path = tmp_path / f"tone.{suffix}"
    stereo = np.stack([tone(seconds, rate), np.zeros(int(seconds * rate))], axis=1)
    soundfile.write(path, stereo, rate)
    samples = read(path)
    expected = tone(seconds) / 2
    assert len(samples) == pytest.approx(len(expected), abs=2)
    middle = slice(RATE // 2, len(expected) - RATE // 2)
    assert np.abs(samples[middle] - expected[middle]).max() < 0.02


def test_a_long_recording_comes_in_blocks_and_a_short_one_whole(tmp_path):
    soundfile.write(tmp_path / "tone.wav", tone(25.0), RATE)
    assert len(list(read_blocks(tmp_path / "tone.wav", RATE, 5.0))) == 3
    assert len(list(read_blocks(tmp_path / "tone.wav", RATE, 30.0))) == 1
    assert np.array_equal(read(tmp_path / "tone.wav", 5.0), read(tmp_path / "tone.wav", 30.0))


def test_what_is_no_audio_is_named(tmp_path):
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.wav").write_text("this is a text\n" * 50)
    (tmp_path / "bytes.raw").write_bytes(bytes(1000))
    soundfile.write(tmp_path / "header.wav", np.zeros(0), RATE)
    soundfile.write(tmp_path / "nan.wav", np.array([0.0, np.nan], dtype=np.float32), RATE, subtype="FLOAT")
    for name, said in (
        ("empty.wav", "is empty (0 bytes)"),
        ("text.wav", "cannot be read as audio"),
        ("header.wav", "holds no audio"),
        ("bytes.raw", "has no header"),
        ("nan.wav", "not numbers"),
        ("missing.wav", "There is no file"),
    ):
        with pytest.raises(DataError) as caught:
            read(tmp_path / name)
        assert said in str(caught.value)
        assert name in str(caught.value)


def test_a_folder_stands_for_the_audio_in_it(tmp_path):
    for name in ("b.wav", "a.flac", "deep/c.OGG"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        soundfile.write(tmp_path / name, tone(0.1), RATE)
    (tmp_path / "notes.txt").write_text("no audio")
    with open_recordings([tmp_path, "other.wav"]) as found:
        assert [each.name for each in found] == [
            *(str(tmp_path / n) for n in ("a.flac", "b.wav", "deep/c.OGG")),
            "other.wav",
        ]
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UsageError, match="There is no audio in the folder"), open_recordings([tmp_path / "nothing"]):
        pass


def test_standard_input_is_read_once():
    with pytest.raises(UsageError, match="only once"), open_recordings(["-", "-"]):
        pass


def test_arrays_and_tensors_of_any_layout_are_the_same_sound():
    mono = to_waveform(tone(1.0), RATE, RATE)
    for audio in (torch.from_numpy(tone(1.0)), np.stack([tone(1.0)] * 2, axis=1), np.stack([tone(1.0)] * 2)):
        assert np.allclose(to_waveform(audio, RATE, RATE), mono, atol=1e-6)
    assert len(to_waveform(tone(1.0, 44100), 44100, RATE)) == RATE


def test_an_array_needs_its_rate_and_samples():
    with pytest.raises(UsageError, match="give `sample_rate` too"):
        to_waveform(tone(1.0), None, RATE)
    with pytest.raises(UsageError, match=r"got shape \(0, 1\)"):
        to_waveform(np.zeros(0), RATE, RATE)
    with pytest.raises(DataError, match="The array holds samples that are not numbers"):
        to_waveform(np.array([np.nan, 0.0]), RATE, RATE)

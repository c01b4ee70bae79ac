"""Audio: every format, rate and channel count becomes mono at the wanted rate, and only the wanted part is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from signals import RATE
from tones import tone, write_tone

from sonosco_like.data.audio import audio_info, load_audio
from sonosco_like.errors import DataError, UsageError


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_every_format_is_read(tmp_path: Path, suffix: str) -> None:
    path = write_tone(tmp_path / f"a.{suffix}", 1.0)
    samples_N = load_audio(path, RATE)
    assert samples_N.dtype == torch.float32
    expected_N = tone(1.0)[:, 0]
    assert len(samples_N) == pytest.approx(RATE, abs=0 if suffix in ("wav", "flac") else 0.1 * RATE)
    middle = slice(RATE // 4, RATE // 2)
    loss = 1e-4 if suffix in ("wav", "flac") else 0.02
    assert np.abs(samples_N.numpy()[middle] - expected_N[middle]).max() < loss


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_any_rate_becomes_the_wanted_rate(tmp_path: Path, rate: int) -> None:
    path = write_tone(tmp_path / "a.wav", 1.0, rate=rate)
    samples_N = load_audio(path, RATE)
    assert len(samples_N) == pytest.approx(RATE, abs=1)
    middle = slice(RATE // 4, 3 * RATE // 4)
    assert np.abs(samples_N.numpy()[middle] - tone(1.0)[middle, 0]).max() < 1e-3


def test_channels_are_averaged(tmp_path: Path) -> None:
    path = write_tone(tmp_path / "a.wav", 0.5, channels=3)
    expected_N = tone(0.5, channels=3).mean(axis=1)
    assert np.abs(load_audio(path, RATE).numpy() - expected_N).max() < 1e-4


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_a_part_is_the_same_as_that_part_of_the_whole(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, np.random.default_rng(0).uniform(-0.5, 0.5, 3 * RATE), RATE)
    whole_N = load_audio(path, RATE)
    part_N = load_audio(path, RATE, offset=1.25, duration=0.5)
    assert torch.equal(part_N, whole_N[int(1.25 * RATE) : int(1.75 * RATE)])
    assert torch.equal(load_audio(path, RATE, offset=2.5, duration=9.0), whole_N[int(2.5 * RATE) :])


def test_the_rest_of_the_file_is_not_decoded(tmp_path: Path) -> None:
    path = write_tone(tmp_path / "a.flac", 4.0)
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4 :] = bytes(len(content) - len(content) * 3 // 4)
    path.write_bytes(content)
    assert len(load_audio(path, RATE, offset=0.5, duration=1.0)) == RATE


def test_samples_stay_within_one(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.array([0.0, 3.0, -3.0, 0.5], dtype=np.float32), RATE, subtype="FLOAT")
    assert load_audio(path, RATE).tolist() == [0.0, 1.0, -1.0, 0.5]


def test_the_header_tells_the_length(tmp_path: Path) -> None:
    info = audio_info(write_tone(tmp_path / "a.flac", 1.5, rate=8000, channels=2))
    assert (info.sample_rate, info.channels, info.frames, info.format, info.duration) == (8000, 2, 12000, "FLAC", 1.5)


def test_files_that_are_no_audio_say_why(tmp_path: Path) -> None:
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.wav").write_text("this is not audio" * 100, encoding="utf-8")
    cases = {"no.wav": "does not exist", "empty.wav": "0 bytes", "text.wav": "cannot be read as audio", ".": "a folder"}
    for name, message in cases.items():
        for read in (audio_info, lambda path: load_audio(path, RATE)):
            with pytest.raises(DataError, match=message):
                read(tmp_path / name)


def test_a_file_without_samples_gives_none(tmp_path: Path) -> None:
    assert len(load_audio(write_tone(tmp_path / "a.wav", 0.0), 8000)) == 0


def test_an_offset_behind_the_end_is_an_error(tmp_path: Path) -> None:
    path = write_tone(tmp_path / "a.wav", 1.0)
    with pytest.raises(DataError, match=r"1\.000 s long.*2\.000 s"):
        load_audio(path, RATE, offset=2.0)


def test_samples_that_are_no_numbers_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.array([0.0, np.nan], dtype=np.float32), RATE, subtype="FLOAT")
    with pytest.raises(DataError, match="not numbers"):
        load_audio(path, RATE)


@pytest.mark.parametrize(("rate", "offset", "duration"), [(0, 0.0, None), (RATE, -1.0, None), (RATE, 0.0, -1.0)])
def test_nonsense_is_refused(tmp_path: Path, rate: int, offset: float, duration: float | None) -> None:
    with pytest.raises(UsageError):
        load_audio(tmp_path / "a.wav", rate, offset, duration)

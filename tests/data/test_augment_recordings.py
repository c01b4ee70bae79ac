"""Noise at the ratio that was drawn, and rooms that echo as long as they should."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from signals import RATE, level_db, snr_db, voice
from tones import write_rows

from sonosco_like.data.augment import utterance_random
from sonosco_like.data.augment_recordings import NoiseFiles, Reverberation, find_recordings, make_room_response
from sonosco_like.errors import UsageError
from sonosco_like.serialization import loads


def random(number: int = 0) -> np.random.Generator:
    return utterance_random(0, 0, str(number))


def write(path: Path, samples_N: np.ndarray, rate: int = RATE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples_N, rate, subtype="FLOAT" if path.suffix == ".wav" else None)
    return path


@pytest.fixture
def ramp(tmp_path) -> Path:
    """Noise whose every sample says where it is: 4 seconds from 0.1 to 0.5."""
    return write(tmp_path / "ramp.wav", np.linspace(0.1, 0.5, 4 * RATE, dtype=np.float32))


@pytest.mark.parametrize("decibels", [-3.0, 10.0, 25.0])
@pytest.mark.parametrize("seconds", [0.7, 5.0])
def test_noise_reaches_its_ratio_whether_cut_or_repeated(tmp_path, decibels, seconds):
    write(tmp_path / "noise.flac", 0.2 * np.random.default_rng(0).standard_normal(3 * RATE))
    samples_N = voice(seconds)
    noisy_N = NoiseFiles(files=tmp_path, snr_db=(decibels, decibels))(samples_N, RATE, random())
    assert len(noisy_N) == len(samples_N)
    assert snr_db(samples_N, noisy_N) == pytest.approx(decibels, abs=0.05)


def test_the_part_of_the_noise_is_drawn_from_all_of_it(ramp):
    augmentation = NoiseFiles(files=ramp, snr_db=(0.0, 0.0))
    samples_N = torch.full((RATE,), 0.5)
    starts = []
    for number in range(100):
        noise_N = augmentation(samples_N, RATE, random(number)) - samples_N
        slope = float((noise_N[-1] - noise_N[0]) / (RATE - 1))
        starts.append(
            (float(noise_N[0]) / slope - RATE) / RATE
        )  # the ramp is 0.1 after as many samples as a second has
    assert min(starts) == pytest.approx(0, abs=0.15)
    assert max(starts) == pytest.approx(3, abs=0.15)


def test_short_noise_is_repeated_from_a_drawn_place(tmp_path):
    write(tmp_path / "n.wav", np.arange(1.0, 101.0, dtype=np.float32) / 100)
    augmentation = NoiseFiles(files=tmp_path / "n.wav", snr_db=(0.0, 0.0))
    samples_N = torch.full((250,), 0.5)
    noises = [augmentation(samples_N, RATE, random(number)) - samples_N for number in range(50)]
    for noise_N in noises:
        torch.testing.assert_close(noise_N[:150], noise_N[100:])
        assert noise_N.argmax() < 100
    assert len({int(noise_N.argmax()) for noise_N in noises}) > 20


def test_every_file_is_drawn_and_other_rates_are_converted(tmp_path):
    tones = {300: 8000, 700: 16000, 1500: 44100}
    for frequency, rate in tones.items():
        write(
            tmp_path / "deep" / f"{frequency}.wav", 0.3 * np.sin(2 * np.pi * frequency * np.arange(rate) / rate), rate
        )
    augmentation = NoiseFiles(files=tmp_path, snr_db=(0.0, 0.0))
    samples_N = torch.full((4000,), 0.5)
    noises = [augmentation(samples_N, RATE, random(number)) - samples_N for number in range(60)]
    heard = [4 * int(torch.fft.rfft(noise_N).abs().argmax()) for noise_N in noises]
    assert {frequency: heard.count(frequency) > 8 for frequency in heard} == dict.fromkeys(tones, True)


def test_folders_files_and_manifests_are_read_in_a_fixed_order(tmp_path):
    names = ["b/2.wav", "b/1.FLAC", "a.wav", "c.ogg", "B.wav"]
    for name in names:
        write(tmp_path / "noise" / name, np.ones(10, dtype=np.float32))
    (tmp_path / "noise" / "readme.txt").write_text("not audio")
    found = [
        Path(recording.path).relative_to(tmp_path / "noise").as_posix()
        for recording in find_recordings(tmp_path / "noise")
    ]
    assert found == ["B.wav", "a.wav", "b/1.FLAC", "b/2.wav", "c.ogg"]
    row = {"audio_filepath": "noise/a.wav", "duration": 0.0005, "offset": 0.0001, "text": ""}
    manifest = write_rows(tmp_path / "noise.jsonl", [row])
    mixed = find_recordings([manifest, tmp_path / "noise" / "c.ogg"])
    assert [Path(recording.path).name for recording in mixed] == ["a.wav", "c.ogg"]
    assert (mixed[0].offset, mixed[0].duration) == (0.0001, 0.0005)


def test_a_row_of_a_manifest_is_only_heard_within_its_bounds(tmp_path, ramp):
    row = {"audio_filepath": ramp.name, "offset": 1.0, "duration": 0.5, "text": ""}
    augmentation = NoiseFiles(files=write_rows(tmp_path / "noise.jsonl", [row]), snr_db=(0.0, 0.0))
    samples_N = torch.full((RATE,), 0.5)
    for number in range(10):
        noise_N = augmentation(samples_N, RATE, random(number)) - samples_N
        assert noise_N.max() / noise_N.min() == pytest.approx(0.25 / 0.2, rel=0.01)


def test_silent_noise_changes_nothing(tmp_path):
    write(tmp_path / "n.wav", np.zeros(1000, dtype=np.float32))
    samples_N = voice(0.2)
    assert torch.equal(NoiseFiles(files=tmp_path)(samples_N, RATE, random()), samples_N)


@pytest.mark.parametrize("kind", ["missing", "empty folder", "nothing", "no samples", "not audio", "bad manifest"])
def test_noise_that_is_not_there_is_an_error_when_it_is_needed(tmp_path, kind):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "none" / "n.wav", np.zeros(0, dtype=np.float32))
    (tmp_path / "torn.wav").write_bytes(b"RIFF")
    (tmp_path / "bad.jsonl").write_text("{}\n")
    sources = {
        "missing": tmp_path / "x", "empty folder": tmp_path / "empty", "no samples": tmp_path / "none",
        "not audio": tmp_path / "torn.wav", "bad manifest": tmp_path / "bad.jsonl",
    }  # fmt: skip
    augmentation = NoiseFiles(files=sources.get(kind, []))  # a trained model is loaded where the noise is not
    with pytest.raises(UsageError, match=r"mix(ed)? in"):
        augmentation(voice(0.2), RATE, random())


def test_noise_files_can_be_written_as_text(tmp_path):
    augmentation = loads(f"class: NoiseFiles\nfiles: {tmp_path}\nsnr_db: [3, 9]\n", NoiseFiles)
    assert augmentation.files == tmp_path
    assert augmentation.snr_db == (3.0, 9.0)


@pytest.mark.parametrize("decay", [0.2, 0.5])
def test_a_made_up_room_dies_away_by_60_decibels_in_its_time(decay):
    response_N = torch.from_numpy(make_room_response(decay, 5.0, RATE, random()))
    assert len(response_N) == round(decay * RATE)
    tenths = [level_db(part_N) for part_N in response_N[1:].chunk(10)]
    assert np.polyfit(np.arange(10) / 10, tenths, 1)[0] == pytest.approx(-60, abs=3)


@pytest.mark.parametrize("direct_db", [-3.0, 0.0, 12.0])
def test_a_made_up_room_has_the_wanted_share_of_direct_sound(direct_db):
    response_N = make_room_response(0.3, direct_db, RATE, random())
    assert response_N[0] == 1
    assert -10 * np.log10(np.square(response_N[1:]).sum()) == pytest.approx(direct_db, abs=0.01)


def test_reverberation_keeps_length_and_loudness_and_fills_pauses():
    samples_N = torch.cat([voice(0.5), torch.zeros(8000), voice(0.5)])
    result_N = Reverberation(decay_seconds=(0.5, 0.5), direct_db=(0.0, 0.0))(samples_N, RATE, random())
    assert len(result_N) == len(samples_N)
    assert level_db(result_N) == pytest.approx(level_db(samples_N), abs=0.01)
    pause = [level_db(result_N[start : start + 800]) for start in range(8000, 15200, 800)]
    assert np.polyfit(np.arange(len(pause)) * 0.05, pause, 1)[0] == pytest.approx(-60 / 0.5, rel=0.15)


def test_a_recorded_response_is_convolved_and_its_delay_removed(tmp_path):
    response_N = np.zeros(900, dtype=np.float32)
    response_N[[300, 340, 700]] = [0.8, -0.4, 0.2]  # the direct sound, and two echoes
    write(tmp_path / "room.wav", response_N)
    samples_N = torch.from_numpy(np.random.default_rng(0).standard_normal(5000).astype(np.float32))
    result_N = Reverberation(responses=tmp_path)(samples_N, RATE, random())
    expected_N = 0.8 * samples_N
    expected_N[40:] -= 0.4 * samples_N[:-40]
    expected_N[400:] += 0.2 * samples_N[:-400]
    expected_N *= samples_N.norm() / expected_N.norm()
    torch.testing.assert_close(result_N, expected_N, atol=1e-5, rtol=0)


def test_a_silent_response_is_an_error_that_names_it(tmp_path):
    write(tmp_path / "dead.wav", np.zeros(100, dtype=np.float32))
    with pytest.raises(UsageError, match=r"dead\.wav is silent"):
        Reverberation(responses=tmp_path)(voice(0.2), RATE, random())


def test_impossible_rooms_are_refused():
    with pytest.raises(UsageError, match="`decay_seconds` must be two numbers greater than 0"):
        Reverberation(decay_seconds=(0.0, 0.3))
    with pytest.raises(UsageError, match="`direct_db` must be two numbers, the smaller one first"):
        Reverberation(direct_db=(3.0, 0.0))

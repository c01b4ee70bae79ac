"""The voice synthesiser: it says what it is told, in the voice it is told, and the same each time."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sonosco_like.data.corpora.espeak import SAMPLE_RATE, Espeak, Prosody
from sonosco_like.data.corpora.espeak_process import LONGEST_PATH
from sonosco_like.errors import DataError


def spoken(voice: str, *texts: str, prosody: Prosody | None = None) -> list[np.ndarray]:
    with Espeak() as engine:
        engine.set_voice(voice)
        return [engine.speak(text, prosody or Prosody()) for text in texts]


def test_a_longer_text_is_longer_and_loud_enough_without_clipping():
    one, five = spoken("gmw/en-US+m3", "one", "one two three four five")
    assert 0.2 < len(one) / SAMPLE_RATE < 1.0
    assert len(five) > 3 * len(one)
    assert 500 < np.abs(five.astype(int)).max() < 32767


def test_two_voices_differ_and_so_do_speeds():
    (man,), (woman,) = spoken("gmw/en-US+m3", "seven"), spoken("gmw/en-US+f2", "seven")
    (slow,) = spoken("gmw/en-US+m3", "seven", prosody=Prosody(speed=90))
    assert not np.array_equal(man, woman[: len(man)])
    assert len(slow) > 1.3 * len(man)


@pytest.mark.parametrize("voice", ["gmw/en-US+nobody", "gmw/en-XX+m3", "nonsense", "gmw/en-US+"])
def test_an_unknown_voice_is_an_error_and_not_the_voice_before(voice):
    with Espeak() as engine:
        engine.set_voice("gmw/en-US+f2")
        with pytest.raises(DataError, match="has no voice"):
            engine.set_voice(voice)


def test_the_error_suggests_a_voice():
    with Espeak() as engine, pytest.raises(DataError, match=r"did you mean 'gmw/en-US\+m3'"):
        engine.set_voice("gmw/en-US+m33")


def test_a_text_without_sound_is_an_error():
    with Espeak() as engine, pytest.raises(DataError, match="no sound"):
        engine.speak("", Prosody())


@pytest.mark.parametrize("voice", ["gmw/en-US+m3", "gmw/en+f1", "gmw/en-US+klatt4", "gmw/en-US+Reed", "gmw/en+sandro"])
def test_a_fresh_engine_says_the_same_whatever_was_said_before(voice):
    first = spoken(voice, "one two three", "six")
    spoken("gmw/en-GB-scotland+f2", "something quite different", "and more of it")
    second = spoken(voice, "one two three", "six")
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_breath_does_not_depend_on_the_time_of_day():
    voices = [f"gmw/en+{variant}" for variant in ("f2", "f3", "f5", "sandro", "victor", "Reed")]
    first = [spoken(voice, "one two three")[0] for voice in voices]
    time.sleep(1.1)  # the library's own seed is the time in whole seconds
    second = [spoken(voice, "one two three")[0] for voice in voices]
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_after_a_restart_nothing_is_left_of_what_was_said():
    with Espeak() as engine:
        engine.set_voice("gmw/en-GB-scotland+f2")
        engine.speak("something quite different", Prosody(speed=300, pitch=90))
        engine.restart()
        engine.set_voice("gmw/en-US+Reed")
        again = engine.speak("one two three", Prosody())
    assert np.array_equal(again, spoken("gmw/en-US+Reed", "one two three")[0])


def test_two_engines_do_not_disturb_each_other():
    alone = spoken("gmw/en-US+m3", "one", "two")
    with Espeak() as engine, Espeak() as other:
        engine.set_voice("gmw/en-US+m3")
        other.set_voice("gmw/en+f1")
        one = engine.speak("one", Prosody())
        other.speak("three four", Prosody())
        beside = [one, engine.speak("two", Prosody())]
    assert all(np.array_equal(a, b) for a, b in zip(alone, beside, strict=True))


@pytest.mark.parametrize(
    ("voice", "digest"),
    [
        ("gmw/en-US+m3", "59dd628443239e64"),
        ("gmw/en+f2", "11ac742a2e7db42e"),
        ("gmw/en-GB-scotland+klatt4", "238bfb5d78b17561"),
        ("gmw/en-US+Reed", "1942661ac7595519"),
    ],
)
def test_the_bits_are_those_of_former_versions(voice, digest):
    with Espeak() as engine:
        engine.set_voice(voice)
        text = engine.speak("one two three", Prosody())
        sounds = engine.speak("[[Tr'i: f'o@]]!", Prosody(speed=120, pitch=70, pitch_range=20, word_gap=3))
    assert hashlib.sha256(text.tobytes() + sounds.tobytes()).hexdigest()[:16] == digest


def libraries_of(process: str) -> str:
    return Path(f"/proc/{process}/maps").read_text()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="shows loaded libraries on Linux only")
def test_the_library_is_loaded_in_a_process_of_its_own_and_not_here():
    with Espeak() as engine:
        engine.speak("one", Prosody())
        assert "libespeak-ng" in libraries_of(str(engine._process.pid))
        assert "libespeak-ng" not in libraries_of("self")
        assert "espeakng_loader" not in sys.modules


def test_a_dead_process_is_an_error_and_not_a_wait():
    with Espeak() as engine:
        engine._process.kill()
        with pytest.raises(DataError, match="process of espeak-ng ended"):
            engine.speak("one", Prosody())


def test_ctrl_c_is_left_to_the_owner():
    with Espeak() as engine:
        engine._process.send_signal(signal.SIGINT)
        assert len(engine.speak("one", Prosody())) > 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_process_ends_with_its_owner(number):
    program = (
        "from sonosco_like.data.corpora.espeak import Espeak\nengine = Espeak(); print('ready', flush=True); input()"
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as owner:
        owner.stdout.readline()
        owner.send_signal(number)
        assert owner.stderr.read() == b""  # its end comes when every process that holds the pipe has ended


def test_data_behind_a_long_path_is_found_and_its_short_name_is_removed(monkeypatch, tmp_path):
    package = Path(importlib.util.find_spec("espeakng_loader").origin).parent
    deep = tmp_path.joinpath(*["a" * 40] * (LONGEST_PATH // 40 + 1))
    deep.mkdir(parents=True)
    (deep / "espeakng_loader").symlink_to(package, target_is_directory=True)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.syspath_prepend(str(deep))
    monkeypatch.delitem(sys.modules, "espeakng_loader", raising=False)
    with Espeak() as engine:
        (link,) = (tmp_path / "temporary").glob("espeak-*/*")
        assert os.fspath(link.resolve()) == os.fspath((package / "espeak-ng-data").resolve())
        engine.set_voice("gmw/en-US+m3")
        assert len(engine.speak("one", Prosody())) > 0
    assert not list((tmp_path / "temporary").iterdir())


def test_every_accent_and_variant_can_be_set():
    with Espeak() as engine:
        accents, variants = engine.voice_names()
        assert "gmw/en-US" in accents
        for accent in accents:
            engine.set_voice(f"{accent}+m3")
        for variant in variants:
            engine.set_voice(f"gmw/en-US+{variant}")


def test_sounds_are_said_as_the_text_they_were_made_of():
    with Espeak() as engine:
        engine.set_voice("gmw/en-US+m3")
        sounds = engine.phonemes_of("three. four")
        assert sounds == "Tr'i: f'o@"
        text, read = (len(engine.speak(each, Prosody())) for each in ("three four", f"[[{sounds}]]"))
        assert read == pytest.approx(text, rel=0.05)

"""The voice synthesiser: it says what it is told, in the voice it is told, and the same each time."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sonosco_like.data.corpora import espeak
from sonosco_like.data.corpora.espeak import SAMPLE_RATE, Espeak, Prosody, voice_names
from sonosco_like.errors import DataError, UsageError


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


def test_a_second_engine_in_one_process_is_refused():
    with Espeak(), pytest.raises(UsageError, match="already open"):
        Espeak()
    with Espeak():
        pass


def test_data_behind_a_long_path_is_found(monkeypatch):
    monkeypatch.setattr(espeak, "_LONGEST_PATH", 10)
    (samples,) = spoken("gmw/en-US+m3", "one")
    assert len(samples) > 0


def test_every_accent_and_variant_can_be_set():
    accents, variants = voice_names()
    assert "gmw/en-US" in accents
    with Espeak() as engine:
        for accent in accents:
            engine.set_voice(f"{accent}+m3")
        for variant in variants:
            engine.set_voice(f"gmw/en-US+{variant}")


def test_sounds_are_said_as_the_text_they_were_made_of():
    with Espeak() as engine:
        engine.set_voice("gmw/en-US+m3")
        sounds = engine.sounds_of("three. four")
        assert sounds == "Tr'i: f'o@"
        text, read = (len(engine.speak(each, Prosody())) for each in ("three four", f"[[{sounds}]]"))
        assert read == pytest.approx(text, rel=0.05)

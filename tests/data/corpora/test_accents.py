"""Foreign accents: what is exchanged, what is kept, and that nothing is lost on the way."""

from __future__ import annotations

import numpy as np
import pytest

from sonosco_like.data.corpora import accents
from sonosco_like.data.corpora.accents import Accent, draw_accent
from sonosco_like.data.corpora.espeak import Espeak, Prosody
from sonosco_like.data.corpora.grammar import KINDS, vocabulary
from sonosco_like.data.corpora.voices import ACCENTS


def test_an_accent_exchanges_whole_sounds_only():
    accent = Accent({"T": "s", "i:": "I", "t": "t["}, devoices=False)
    assert accent.apply("Tr'i: tS'i: t'Enti") == "sr'I tS'I t['Ent[i"


def test_the_mark_of_a_shade_goes_with_its_sound():
    accent = Accent({"@": "E", "O": "o"}, devoices=False)
    assert accent.apply("O2nD@2 s'Ev@n aI2") == "onDE s'EvEn aI2"


def test_a_sound_that_is_already_dental_is_left_alone():
    assert Accent({"t": "t["}, devoices=False).apply("t[r'i: t'u:") == "t[r'i: t['u:"


def test_voiced_consonants_lose_their_voice_at_the_end_of_a_word_only():
    assert Accent({}, devoices=True).apply("f'aIv v'aIn br'IdZ") == "f'aIf v'aIn br'ItS"


def test_some_speakers_have_an_accent_and_hardly_two_have_the_same():
    random = np.random.default_rng(0)
    drawn = [draw_accent(random) for _ in range(200)]
    foreign = [accent for accent in drawn if accent is not None]
    assert 90 < len(foreign) < 150
    assert len({(*accent.replaced.items(), accent.devoices) for accent in foreign}) > 0.95 * len(foreign)


@pytest.mark.parametrize("voice", ACCENTS)
def test_the_strongest_accent_still_says_every_word_to_its_end(voice, monkeypatch):
    """espeak-ng stops at a sound it does not know, and says nothing about it."""
    monkeypatch.setattr(accents, "SHARE", 1.0)
    monkeypatch.setattr(accents, "_HABIT", 1.0)
    random = np.random.default_rng(0)
    with Espeak() as engine:
        engine.set_voice(f"{voice}+m1")
        for word in sorted(set().union(*map(vocabulary, KINDS))):
            accent = draw_accent(random)
            sounds = accent.apply(engine.sounds_of(f"{word} seven"))
            plain, accented = (len(engine.speak(text, Prosody())) for text in (f"{word} seven", f"[[{sounds}]]"))
            assert 0.7 < accented / plain < 1.5, (word, sounds)

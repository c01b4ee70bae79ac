"""Synthetic speakers: the voices of each split, their foreign accents, and how they speak."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.data.corpora import speakers
from sonosco_like.data.corpora.channel import SAMPLE_RATE
from sonosco_like.data.corpora.espeak import Espeak, Prosody
from sonosco_like.data.corpora.grammar import KINDS, vocabulary
from sonosco_like.data.corpora.speakers import (
    ACCENTS,
    LEFT_OUT,
    Accent,
    _phrases,
    draw_accent,
    draw_speaker,
    draw_voices,
    families,
    say,
    split_variants,
)

MEMBERS = [variant for group in families() for family in group for variant in family]


def test_every_installed_voice_is_either_used_or_left_out_for_a_reason():
    with Espeak() as engine:
        accents, variants = engine.voice_names()
    assert sorted([*ACCENTS, *MEMBERS, *LEFT_OUT]) == sorted([*accents, *variants])
    assert all(LEFT_OUT.values())


@given(seed=st.integers(0, 2**32))
def test_no_family_is_in_two_splits_and_each_split_has_high_and_low_voices(seed):
    splits = split_variants(np.random.default_rng(seed))
    assert sorted(variant for variants in splits.values() for variant in variants) == sorted(MEMBERS)
    for group in families():
        for family in group:
            assert sum(not set(family).isdisjoint(variants) for variants in splits.values()) == 1
        for variants in splits.values():
            assert any(set(family) <= set(variants) for family in group)
    assert len(splits["train"]) > 0.6 * len(MEMBERS)


def test_every_variant_speaks_once_before_any_speaks_twice():
    variants = ["f1", "m1", "m2"]
    voices = list(itertools.islice(draw_voices(variants, np.random.default_rng(0)), 6))
    spoken = [voice.partition("+")[2] for voice in voices]
    assert sorted(spoken[:3]) == sorted(spoken[3:]) == variants
    assert {voice.partition("+")[0] for voice in voices} <= set(ACCENTS)


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
    monkeypatch.setattr(speakers, "SHARE", 1.0)
    monkeypatch.setattr(speakers, "_HABIT", 1.0)
    random = np.random.default_rng(0)
    with Espeak() as engine:
        engine.set_voice(f"{voice}+m1")
        for word in sorted(set().union(*map(vocabulary, KINDS))):
            accent = draw_accent(random)
            sounds = accent.apply(engine.phonemes_of(f"{word} seven"))
            plain, accented = (len(engine.speak(text, Prosody())) for text in (f"{word} seven", f"[[{sounds}]]"))
            assert 0.7 < accented / plain < 1.5, (word, sounds)


@pytest.fixture
def engine():
    with Espeak() as engine:
        engine.set_voice("gmw/en-US+m3")
        yield engine


def test_an_utterance_lies_between_silences_and_fills_the_range(engine):
    random = np.random.default_rng(0)
    speaker = draw_speaker("gmw/en-US+m3", random)
    for _ in range(10):
        voice = say(engine, speaker, "one two three", random)
        loud = np.flatnonzero(np.abs(voice) > 0.05)
        assert loud[0] / SAMPLE_RATE > 0.04
        assert (len(voice) - loud[-1]) / SAMPLE_RATE > 0.04
        assert 0.7 < np.abs(voice).max() < 1.3
        assert 0.8 < len(voice) / SAMPLE_RATE < 8.0


def test_some_utterances_are_one_phrase_some_are_single_words_and_no_word_is_lost():
    random = np.random.default_rng(0)
    words = ["one", "two", "three", "four", "five"]
    drawn = [_phrases(words, random) for _ in range(200)]
    assert all(" ".join(phrases).split() == words for phrases in drawn)
    lengths = {len(phrases) for phrases in drawn}
    assert {1, 5} < lengths


def test_speakers_differ():
    random = np.random.default_rng(0)
    speakers = [draw_speaker("gmw/en-US+m3", random) for _ in range(20)]
    assert len({round(speaker.speed) for speaker in speakers}) > 10
    assert len({round(speaker.pitch) for speaker in speakers}) > 10

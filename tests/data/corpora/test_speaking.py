"""How synthetic speakers talk."""

from __future__ import annotations

import numpy as np
import pytest

from sonosco_like.data.corpora.channel import SAMPLE_RATE
from sonosco_like.data.corpora.espeak import Espeak
from sonosco_like.data.corpora.speaking import _phrases, draw_speaker, say


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

"""Transcripts as text, JSON lines and subtitles."""

from __future__ import annotations

import itertools
import json

import pytest

from sonosco_like.inference.transcript import Segment, Transcript, cues_of, render
from sonosco_like.records import Hypothesis, Token

WORDS = (Token("one", 0.5, 0.8, 0.9), Token("<two>", 1.0, 1.4, 0.4))
MORE = (Token("three", 3661.25, 3661.9, 0.9),)
READINGS = (Hypothesis("one two", (), -1.5), Hypothesis("won two", (), float("-inf")))
TRANSCRIPT = Transcript("a.wav", (Segment(0, 5, WORDS, READINGS), Segment(5, 3660), Segment(3660, 3670, MORE)))


def test_text_has_a_line_for_each_segment_with_words():
    assert render(TRANSCRIPT, "txt") == "one <two>\nthree\n"
    assert str(TRANSCRIPT) == TRANSCRIPT.text == "one <two> three"


def test_a_recording_without_words_is_an_empty_line():
    nothing = Transcript("b.wav", (Segment(0, 5),))
    assert render(nothing, "txt") == "\n"
    assert render(nothing, "srt") == ""
    assert render(nothing, "vtt") == "WEBVTT\n\n"
    assert json.loads(render(nothing, "json"))["confidence"] is None


def test_srt():
    assert render(TRANSCRIPT, "srt") == (
        "1\n00:00:00,500 --> 00:00:01,900\none <two>\n\n2\n01:01:01,250 --> 01:01:02,400\nthree\n\n"
    )


def test_vtt_escapes_what_would_be_a_tag():
    assert render(TRANSCRIPT, "vtt") == (
        "WEBVTT\n\n00:00:00.500 --> 00:00:01.900\none &lt;two>\n\n01:01:01.250 --> 01:01:02.400\nthree\n\n"
    )


def test_json_is_one_line_with_words_times_and_confidences():
    text = render(TRANSCRIPT, "json")
    assert text.count("\n") == 1
    content = json.loads(text)
    assert list(content) == ["audio", "duration", "text", "confidence", "words", "segments"]
    assert content["words"][0] == {"word": "one", "start": 0.5, "end": 0.8, "confidence": 0.9}
    assert content["confidence"] == pytest.approx((0.9 * 0.4 * 0.9) ** (1 / 3), abs=1e-4)
    assert "hypotheses" not in content["segments"][0]


def test_json_has_all_hypotheses_if_they_were_asked_for():
    segments = json.loads(render(TRANSCRIPT, "json", n_best=True))["segments"]
    assert segments[0]["hypotheses"] == [{"text": "one two", "score": -1.5}, {"text": "won two", "score": None}]


def test_subtitles_are_short_and_end_at_pauses():
    words = [Token("word", 0.4 * index, 0.4 * index + 0.3, 1.0) for index in range(40)]
    words += [Token("later", 20.0, 20.5, 1.0)]
    cues = list(cues_of(words))
    assert all(len(line) <= 42 for cue in cues for line in cue.text.split("\n"))
    assert all(cue.text.count("\n") <= 1 and cue.end - cue.start <= 6.6 for cue in cues)
    assert all(before.end <= after.start for before, after in itertools.pairwise(cues))
    assert cues[-1].text == "later"
    assert " ".join(cue.text for cue in cues).split() == [word.text for word in words]

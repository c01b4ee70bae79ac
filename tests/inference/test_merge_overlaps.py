"""Words that two overlapping chunks have heard, once."""

from __future__ import annotations

import pytest

from sonosco_like.inference.audio_stream import Chunk, merge_overlaps, segment_of
from sonosco_like.inference.transcript import Segment
from sonosco_like.records import Hypothesis, Token


def segment(start: float, end: float, text: str, first: float, step: float = 0.5) -> Segment:
    """Words of 0.3 s, one each `step` seconds from `first` on."""
    times = [first + step * index for index in range(len(text.split()))]
    words = [Token(word, at, at + 0.3, 0.9) for word, at in zip(text.split(), times, strict=True)]
    return Segment(start, end, tuple(words))


def joined(before: Segment, after: Segment) -> str:
    return " ".join(part.text for part in merge_overlaps(before, after) if part.text)


def test_words_that_both_have_heard_are_kept_once():
    before = segment(0, 6, "a b c d e f g h i j k l", 0.0)
    after = segment(4, 10, "i j k l m n o", 4.0)
    assert joined(before, after) == "a b c d e f g h i j k l m n o"


def test_half_words_at_the_edges_do_not_matter():
    before = segment(0, 6, "a b c d e f g h i j k lu", 0.0)
    after = segment(4, 10, "ei j k l m n o", 4.0)
    assert joined(before, after) == "a b c d e f g h i j k l m n o"


def test_where_they_agree_on_nothing_each_is_believed_in_its_half():
    before = segment(0, 6, "a b c d e f g h x x x x", 0.0)
    after = segment(4, 10, "y y y y m n", 4.0)
    assert joined(before, after) == "a b c d e f g h x x y y m n"


def test_a_side_without_words_is_no_problem():
    assert joined(segment(0, 6, "", 0.0), segment(4, 10, "a b", 6.0)) == "a b"
    assert joined(segment(0, 6, "a b", 0.0), segment(4, 10, "", 6.0)) == "a b"


def test_the_segments_touch_between_their_words():
    before, after = merge_overlaps(segment(0, 6, "a b c d e f g h i j k l", 0.0), segment(4, 10, "i j k l m n o", 4.0))
    assert before.end == after.start
    assert before.words[-1].end <= before.end <= after.words[0].start


def test_times_are_those_of_the_recording():
    chunk = Chunk(None, 10.0, 11.0)
    words = (Token("a", 0.5, 0.6, 0.8), Token("b", 0.9, 1.1, 0.8))
    made = segment_of(chunk, [Hypothesis("a b", (), 0.0, (), words)])
    assert [(word.start, word.end) for word in made.words] == [(10.5, 10.6), (10.9, 11.0)]
    assert made.words[0].start == pytest.approx(10.5)
    assert segment_of(chunk, []).text == ""

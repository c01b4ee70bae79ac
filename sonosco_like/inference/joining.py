"""The readings of pieces as segments of one recording; words heard in two overlapping pieces are kept once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from sonosco_like.inference.cutting import Piece
from sonosco_like.inference.transcript import Segment
from sonosco_like.records import Hypothesis, Token

Words = tuple[Token, ...]


def segment_of(piece: Piece, readings: Sequence[Hypothesis]) -> Segment:
    """What was heard in a piece, with the times of the recording it is from."""
    words = readings[0].words if readings else ()
    placed = tuple(
        replace(word, start=piece.start + word.start, end=min(piece.start + word.end, piece.end)) for word in words
    )
    return Segment(piece.start, piece.end, placed, tuple(readings))


def join(before: Segment, after: Segment) -> tuple[Segment, Segment]:
    """Two segments that overlap as two that do not.

    The words in the overlap are compared. Where both heard the same, one changes over to the other in the middle of
    the longest such run; where they agree on nothing, in the middle of the overlap. Near its edge each of them may
    have heard half a word.
    """
    tail = [index for index, word in enumerate(before.words) if word.end > after.start]
    head = [index for index, word in enumerate(after.words) if word.start < before.end]
    said, heard = [before.words[index].text for index in tail], [after.words[index].text for index in head]
    match = SequenceMatcher(None, said, heard, autojunk=False).find_longest_match()
    if match.size:
        kept = tail[match.a] + (match.size + 1) // 2
        first = head[match.b] + (match.size + 1) // 2
        words, following = before.words[:kept], after.words[first:]
    else:
        middle = (after.start + before.end) / 2
        words = tuple(word for word in before.words if word.start + word.end <= 2 * middle)
        following = tuple(word for word in after.words if word.start + word.end > 2 * middle)
    border = _border(words, following, (after.start + before.end) / 2)
    return replace(before, words=words, end=border), replace(after, words=following, start=border)


def _border(words: Words, following: Words, middle: float) -> float:
    """Where one segment ends and the other begins: between the last word and the next."""
    earliest = words[-1].end if words else middle
    latest = following[0].start if following else middle
    return min(max(earliest, middle), latest) if earliest <= latest else (earliest + latest) / 2

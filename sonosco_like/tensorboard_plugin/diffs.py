"""Reference against hypothesis, by word and by character, as short lists that a browser can draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from rapidfuzz.distance import Levenshtein

from sonosco_like.tensorboard_plugin.records import characters_of, words_of

_MOST_WORDS = 4000  # an alignment takes memory that grows with the square of the length
EQUAL, SUBSTITUTED, DELETED, INSERTED = "=", "s", "d", "i"

Piece = list[Any]  # [kind, said, heard]; what is missing is None


def word_diff(reference: str, hypothesis: str) -> list[Piece]:
    """One piece for each word."""
    return _word_pieces(words_of(reference), words_of(hypothesis))


def _word_pieces(said: list[str], heard: list[str]) -> list[Piece]:
    pieces: list[Piece] = []
    for kind, before, after in _blocks(said, heard):
        pieces += [[kind, *pair] for pair in zip_longest(before, after)]
    return pieces


def character_diff(reference: str, hypothesis: str) -> list[Piece]:
    """One piece for each run of characters of one kind."""
    blocks = _blocks(characters_of(reference), characters_of(hypothesis))
    return [[kind, before or None, after or None] for kind, before, after in blocks]


def confusions(references: Sequence[str], hypotheses: Sequence[str], most: int) -> dict[str, list[list[Any]]]:
    """The words most often taken for another, missed and invented, each with its count.

    Of very long texts, such as those of a decoder that does not find an end, the beginnings are looked at.
    """
    pairs: Counter[tuple[str, str | None, str | None]] = Counter()
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        if reference != hypothesis:
            pieces = _word_pieces(words_of(reference)[:_MOST_WORDS], words_of(hypothesis)[:_MOST_WORDS])
            pairs.update(tuple(piece) for piece in pieces if piece[0] != EQUAL)
    return {
        "substitutions": _top(pairs, SUBSTITUTED, most),
        "deletions": _top(pairs, DELETED, most),
        "insertions": _top(pairs, INSERTED, most),
    }


def _blocks(said: Any, heard: Any) -> Iterable[tuple[str, Any, Any]]:
    """(kind, part of what was said, part of what was heard), in order."""
    kinds = {"equal": EQUAL, "replace": SUBSTITUTED, "delete": DELETED, "insert": INSERTED}
    for block in Levenshtein.opcodes(said, heard):
        yield kinds[block.tag], said[block.src_start : block.src_end], heard[block.dest_start : block.dest_end]


def _top(pairs: Counter[tuple[str, str | None, str | None]], kind: str, most: int) -> list[list[Any]]:
    of_kind = [(count, said or "", heard or "") for (each, said, heard), count in pairs.items() if each == kind]
    of_kind.sort(key=lambda each: (-each[0], each[1], each[2]))
    return [[said, heard, count] for count, said, heard in of_kind[:most]]

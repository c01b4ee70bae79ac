"""What a symbol means for words: some letters, the beginning of a word, or the gap between two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sonosco_like.data.text import UNKNOWN_TEXT
from sonosco_like.records import SPECIAL_SYMBOLS, UNKNOWN

WORD_MARK = "▁"  # SentencePiece writes this where a word begins


class Unit(NamedTuple):
    """A symbol as a part of words: a gap is a beginning without letters."""

    text: str
    begins_word: bool


def unit_of(symbol: str) -> Unit:
    """The letters of a symbol, and whether a word begins with it."""
    if symbol in SPECIAL_SYMBOLS:
        return Unit(UNKNOWN_TEXT if symbol == SPECIAL_SYMBOLS[UNKNOWN] else "", False)
    plain = symbol.replace(WORD_MARK, " ")
    return Unit(plain.strip(" "), plain.startswith(" "))


def units_of(symbols: Sequence[str]) -> list[Unit]:
    """The meaning of several symbols."""
    return [unit_of(symbol) for symbol in symbols]

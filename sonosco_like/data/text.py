"""Transcripts as labels: cleaning, and the tokenizer over characters. Word pieces are in `bpe`.

What cleaning drops, and what has no label, is counted, and `report()` says it in words.
"""

from __future__ import annotations

import string
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import cached_property
from typing import Literal

from sonosco_like.errors import DataError, UsageError
from sonosco_like.records import SPECIAL_SYMBOLS, UNKNOWN
from sonosco_like.serialization import serializable

Missing = Literal["error", "unknown", "drop"]
UNKNOWN_TEXT = "⁇"


class Tally:
    """Counts of characters that did not make it into the labels."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def describe(self, most: int = 12) -> str:
        """The most frequent characters with their counts."""
        shown = ", ".join(f"{character!r} {count} times" for character, count in self.counts.most_common(most))
        more = len(self.counts) - most
        return shown + (f" and {more} others" if more > 0 else "")


@serializable
class TextCleaner:
    """Bring transcripts into one form: Unicode, case, replacements, punctuation, blanks; in this order.

    Punctuation and symbols that are not in `punctuation` become blanks and are counted.
    """

    normal_form: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = "NFKC"
    case: Literal["lower", "upper", "keep"] = "lower"
    replacements: dict[str, str] = field(default_factory=lambda: {"’": "'"})
    punctuation: str = "'"
    collapse_blanks: bool = True

    def __post_init__(self) -> None:
        if "" in self.replacements:
            raise UsageError("`replacements` of TextCleaner cannot replace an empty text.")

    @cached_property
    def dropped(self) -> Tally:
        """What cleaning removed so far."""
        return Tally()

    def __call__(self, text: str) -> str:
        """The cleaned text."""
        if self.normal_form is not None:
            text = unicodedata.normalize(self.normal_form, text)
        if self.case != "keep":
            text = text.lower() if self.case == "lower" else text.upper()
        for old, new in self.replacements.items():
            text = text.replace(old, new)
        unwanted = {character for character in set(text) if self._is_unwanted(character)}
        if unwanted:
            self.dropped.counts.update(character for character in text if character in unwanted)
            text = text.translate(dict.fromkeys(map(ord, unwanted), " "))
        return " ".join(text.split()) if self.collapse_blanks else text

    def report(self) -> str:
        """What was dropped so far, in words."""
        return f"Cleaning dropped {self.dropped.describe()}." if self.dropped.counts else "Cleaning dropped nothing."

    def _is_unwanted(self, character: str) -> bool:
        if character.isalnum() or character.isspace() or character in self.punctuation:
            return False
        return unicodedata.category(character)[0] in "PSC"  # punctuation, symbols, control characters


@serializable
class Tokenizer(ABC):
    """Text to labels and back. Every vocabulary begins with `SPECIAL_SYMBOLS`.

    `missing` says what to do about a part of a text that has no label: an error, the label UNKNOWN, or no label at all.
    """

    missing: Missing = "error"

    def __post_init__(self) -> None:
        """Nothing is built here, so that a subclass may or may not call it."""

    @cached_property
    def lacking(self) -> Tally:
        """What had no label so far."""
        return Tally()

    @property
    @abstractmethod
    def symbols(self) -> tuple[str, ...]:
        """What each label stands for."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The labels of a text, without START and END."""

    @abstractmethod
    def decode(self, labels: Iterable[int]) -> str:
        """The text of labels; special symbols are left out, but for UNKNOWN, which stays visible."""

    @property
    def size(self) -> int:
        """The number of labels, V."""
        return len(self.symbols)

    def report(self) -> str:
        """What had no label so far, in words."""
        if not self.lacking.counts:
            return "Every character has a label."
        return f"There is no label for {self.lacking.describe()} (missing: {self.missing})."

    def _without_label(self, labels: list[int], parts: Sequence[str]) -> list[int]:
        """Count the parts whose label is UNKNOWN, and treat them as `missing` says."""
        if UNKNOWN not in labels:
            return labels
        lacking = [part for part, label in zip(parts, labels, strict=True) if label == UNKNOWN]
        self.lacking.counts.update("".join(lacking))
        if self.missing == "error":
            raise DataError(
                f"There is no label for {', '.join(map(repr, dict.fromkeys(lacking)))} in the text "
                f"{_short(''.join(parts))!r}. Extend the vocabulary, have a TextCleaner replace it, or set the "
                f"tokenizer's `missing` to drop or unknown."
            )
        return labels if self.missing == "unknown" else [label for label in labels if label != UNKNOWN]


@serializable
class Alphabet(Tokenizer):
    """One label for each character."""

    characters: str = string.ascii_lowercase + "' "

    def __post_init__(self) -> None:
        super().__post_init__()
        double = sorted(character for character, count in Counter(self.characters).items() if count > 1)
        if double or not self.characters:
            raise UsageError(f"`characters` of Alphabet must be different characters, at least one; twice: {double}.")
        self._symbols = (*SPECIAL_SYMBOLS, *self.characters)
        self._labels = {character: label for label, character in enumerate(self.characters, len(SPECIAL_SYMBOLS))}

    @property
    def symbols(self) -> tuple[str, ...]:
        """The special symbols and the characters."""
        return self._symbols

    def encode(self, text: str) -> list[int]:
        """A label for each character."""
        return self._without_label([self._labels.get(character, UNKNOWN) for character in text], text)

    def decode(self, labels: Iterable[int]) -> str:
        """The characters of the labels."""
        special = dict(enumerate(("", "", "", UNKNOWN_TEXT)))
        return "".join(special.get(label, self._symbols[label]) for label in map(int, labels))


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."

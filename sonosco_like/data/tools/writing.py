"""How the texts of a corpus are written: which characters there are, and what brings them into one form."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sonosco_like.data.text import TextCleaner

_TYPED_AS_ONE = "\u0e33\u0eb3"  # vowels of Thai and Lao, which NFKC would write as two signs
_DOTTED, _DOTTED_IN_LOWER_CASE, _DOTLESS = "\u0130", "i\u0307", "\u0131"
_LETTERS_OF_A_LONG_WORD = 12  # on average; texts that pass this have no spaces between their words
_EXAMPLES = 8


@dataclass
class Writing:
    """The texts of a corpus, cleaned: the cleaner that fits them, their characters and words, and why it is so.

    `cleaner` brings every text into one form. `characters`, `words` and `dropped` are counts after, and of, cleaning.
    """

    cleaner: TextCleaner
    characters: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    empty: int = 0
    with_digits: int = 0
    reasons: list[str] = field(default_factory=list)

    @property
    def alphabet(self) -> str:
        """Every character, in order; the space first."""
        return "".join(sorted(self.characters))

    @property
    def has_spaces(self) -> bool:
        """Whether spaces divide the texts into words; in Chinese, Japanese and Thai they do not."""
        letters = sum(map(len, self.words.elements()))
        return letters <= _LETTERS_OF_A_LONG_WORD * max(self.words.total(), 1)


def examine_writing(texts: Sequence[str]) -> Writing:
    """Choose a cleaner for texts, and count what it leaves of them."""
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text)
    found = _choose_cleaner(raw)
    for text in texts:
        cleaned = found.cleaner(text).strip()
        found.empty += not cleaned
        found.with_digits += any(each.isdecimal() for each in cleaned)
        found.characters.update(cleaned)
        found.words.update(cleaned.split())
    found.texts, found.dropped = len(texts), Counter(found.cleaner.dropped_counts)
    return found


def _choose_cleaner(raw: Counter[str]) -> Writing:
    form, why_form = _choose_normal_form(raw)
    case, why_case = _choose_case(raw)
    cleaner = TextCleaner(normal_form=form, case=case)
    if _DOTTED in raw and case == "lower":
        cleaner.replacements = {**cleaner.replacements, _DOTTED_IN_LOWER_CASE: "i"}
    return Writing(cleaner, reasons=[why_form, why_case])


def _choose_normal_form(raw: Counter[str]) -> tuple[Literal["NFC", "NFKC"], str]:
    """NFKC only where it changes letters or digits beyond NFC, such as full-width ones."""
    changed = [
        each
        for each in raw
        if each.isalnum()
        and each not in _TYPED_AS_ONE
        and unicodedata.normalize("NFKC", each) != unicodedata.normalize("NFC", each)
    ]
    if changed:
        examples = "".join(sorted(changed)[:_EXAMPLES])
        return "NFKC", f"NFKC: special forms such as {examples!r} become the letters and digits they stand for"
    joined = "; letters with separate accents are joined" if any(map(unicodedata.combining, raw)) else ""
    return "NFC", f"NFC: no text has special forms of letters, which NFKC would change{joined}"


def _choose_case(raw: Counter[str]) -> tuple[Literal["lower", "keep"], str]:
    upper = sum(count for each, count in raw.items() if each != each.lower())
    lower = sum(count for each, count in raw.items() if each != each.upper())
    if not upper and not lower:
        return "keep", "as it is: this script has no case"
    if _DOTLESS in raw and "I" in raw:
        return "lower", "lower; but these texts know a dotless i, and `I` becomes `i`: write them in lower case first"
    if not upper:
        return "lower", "lower, as all texts are already"
    return "lower", f"lower: case cannot be heard ({upper / (upper + lower):.0%} of the letters are upper case)"

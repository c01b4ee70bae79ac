"""The alignment of a reference and a hypothesis: how many edits there are, and which word became which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from rapidfuzz.distance import Levenshtein

EditKind = Literal["equal", "substitution", "deletion", "insertion"]
_KINDS: dict[str, EditKind] = {
    "equal": "equal",
    "replace": "substitution",
    "delete": "deletion",
    "insert": "insertion",
}
_MARKS = {"": "=", "S": "s", "D": "d", "I": "i"}  # of edits, as pages read them


@dataclass(frozen=True, slots=True)
class ErrorCounts:
    """The edits that turn references into hypotheses, and the length of the references; counts can be added."""

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    reference_length: int = 0

    @property
    def errors(self) -> int:
        """The edit distance: all edits together."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Edits per reference word (or character).

        Without any reference word the rate is the number of insertions: it is finite, and not zero for a recogniser
        that invents words in silence. jiwer does the same.
        """
        return self.errors / max(1, self.reference_length)

    def in_words(self) -> str:
        """The counts as text: `1 error in 6 words`."""
        errors, words = self.errors, self.reference_length
        return f"{errors} {'error' if errors == 1 else 'errors'} in {words} {'word' if words == 1 else 'words'}"

    def __add__(self, other: ErrorCounts) -> ErrorCounts:
        return ErrorCounts(
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
            self.reference_length + other.reference_length,
        )


@dataclass(frozen=True, slots=True)
class Edit:
    """One place of an alignment: a deletion has no hypothesis, an insertion no reference."""

    kind: EditKind
    reference: str | None
    hypothesis: str | None

    @property
    def mark(self) -> str:
        """S, D or I for an error, nothing for equal words."""
        return "" if self.kind == "equal" else self.kind[0].upper()


@dataclass(frozen=True, slots=True)
class Alignment:
    """A reference and a hypothesis, word by word, with the fewest possible edits."""

    edits: tuple[Edit, ...]

    @property
    def counts(self) -> ErrorCounts:
        """The number of edits of each kind."""
        kinds = [edit.kind for edit in self.edits]
        insertions = kinds.count("insertion")
        return ErrorCounts(kinds.count("substitution"), kinds.count("deletion"), insertions, len(kinds) - insertions)


def words_of(text: str) -> list[str]:
    """The words of a text, without the spaces between them."""
    return text.split()


def characters_of(text: str) -> str:
    """The characters of a text with one space between words: a missing space is an error, a double one is not."""
    return " ".join(text.split())


def count_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> ErrorCounts:
    """The edits between two sequences of words, or between the characters of two texts."""
    tags = [edit.tag for edit in Levenshtein.editops(reference, hypothesis)]
    return ErrorCounts(tags.count("replace"), tags.count("delete"), tags.count("insert"), len(reference))


def count_word_errors(references: Iterable[str], hypotheses: Iterable[str]) -> ErrorCounts:
    """The word errors of all texts of a corpus."""
    pairs = zip(references, hypotheses, strict=True)
    return sum((count_errors(words_of(r), words_of(h)) for r, h in pairs), ErrorCounts())


def count_character_errors(references: Iterable[str], hypotheses: Iterable[str]) -> ErrorCounts:
    """The character errors of all texts of a corpus."""
    pairs = zip(references, hypotheses, strict=True)
    return sum((count_errors(characters_of(r), characters_of(h)) for r, h in pairs), ErrorCounts())


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> Alignment:
    """Align two sequences of words, or the characters of two texts."""
    edits: list[Edit] = []
    for block in Levenshtein.opcodes(reference, hypothesis):
        kind = _KINDS[block.tag]
        before: Sequence[str | None] = reference[block.src_start : block.src_end]
        after: Sequence[str | None] = hypothesis[block.dest_start : block.dest_end]
        length = max(len(before), len(after))
        edits.extend(map(Edit, [kind] * length, before or [None] * length, after or [None] * length))
    return Alignment(tuple(edits))


def align_words(reference: str, hypothesis: str) -> Alignment:
    """Align the words of two texts."""
    return align(words_of(reference), words_of(hypothesis))


def word_diff(reference: str, hypothesis: str) -> list[list[str | None]]:
    """[mark, reference word, hypothesis word] for each place of the alignment."""
    return [_piece(edit) for edit in align_words(reference, hypothesis).edits]


def character_diff(reference: str, hypothesis: str) -> list[list[str | None]]:
    """[mark, reference part, hypothesis part] for each run of characters with the same kind of edit."""
    edits = align(characters_of(reference), characters_of(hypothesis)).edits
    runs = [list(run) for _, run in groupby(edits, key=lambda edit: edit.kind)]
    return [
        [
            _MARKS[run[0].mark],
            "".join(edit.reference or "" for edit in run) or None,
            "".join(edit.hypothesis or "" for edit in run) or None,
        ]
        for run in runs
    ]


def _piece(edit: Edit) -> list[str | None]:
    return [_MARKS[edit.mark], edit.reference, edit.hypothesis]

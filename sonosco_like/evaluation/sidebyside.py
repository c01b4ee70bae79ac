"""What was said above what was heard, word under word, with a letter for each kind of error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len

from sonosco_like.evaluation.results import Result
from sonosco_like.metrics import Edit

_LETTERS = {"equal": "", "substitution": "S", "deletion": "D", "insertion": "I"}
_NOTHING = "*"


@dataclass(frozen=True, slots=True)
class Column:
    """One place of an alignment, all its parts of the same width."""

    said: str
    heard: str
    mark: str
    kind: str


def rows_of(result: Result, width: int) -> Iterator[list[Column]]:
    """The alignment of an utterance in rows that are no wider than asked, if single words are not."""
    row: list[Column] = []
    used = 0
    for column in map(_column, result.alignment.edits):
        needed = cell_len(column.said) + 1
        if row and used + needed > width:
            yield row
            row, used = [], 0
        row.append(column)
        used += needed
    if row:
        yield row


def _column(edit: Edit) -> Column:
    said, heard = edit.reference or "", edit.hypothesis or ""
    width = max(cell_len(said), cell_len(heard))
    mark = _LETTERS[edit.kind]
    parts = [
        part + " " * (width - cell_len(part)) for part in (said or _NOTHING * width, heard or _NOTHING * width, mark)
    ]
    return Column(parts[0], parts[1], parts[2], edit.kind)

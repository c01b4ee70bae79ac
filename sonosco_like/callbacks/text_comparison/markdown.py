"""What was said above what was heard, word by word, as a Markdown table for TensorBoard's text tab."""

from __future__ import annotations

import re

from sonosco_like.metrics import Edit, align, characters_of, count_errors, words_of

_WORDS_PER_TABLE = 14
_MARKS = {"equal": "", "substitution": "S", "deletion": "D", "insertion": "I"}
_NOTHING = "∅"
_SPECIAL = re.compile(r"[^\w\s]", re.ASCII)
_LEGEND = "S substituted, D deleted (said, not heard), I inserted (heard, not said)"


def comparison(name: str, reference: str, hypothesis: str, before: float | None, how: str) -> str:
    """One utterance for people to read; `how` says by what way of decoding the hypothesis came about."""
    said, heard = words_of(reference), words_of(hypothesis)
    counts = count_errors(said, heard)
    characters = count_errors(characters_of(reference), characters_of(hypothesis))
    was = "" if before is None else f" (before {_percent(before)})"
    head = f"**{plain(name)}**, {how}: WER **{_percent(counts.rate)}**{was}, CER {_percent(characters.rate)}"
    edits = align(said, heard).edits
    if not edits:
        return f"{head}\n\nNothing was said, and nothing was heard."
    pieces = [edits[first : first + _WORDS_PER_TABLE] for first in range(0, len(edits), _WORDS_PER_TABLE)]
    tables = "\n\n".join(_table(piece) for piece in pieces)
    return f"{head}\n\n{tables}" + (f"\n\n{_LEGEND}" if counts.errors else "")


def plain(text: str) -> str:
    """A text that Markdown and HTML show as it is, whatever characters it has."""
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", " ".join(text.split())).replace("_", "&#95;")


def _table(edits: tuple[Edit, ...]) -> str:
    said = [_cell(edit.reference) for edit in edits]
    heard = [_cell(edit.hypothesis) for edit in edits]
    heard = [text if edit.kind == "equal" else f"**{text}**" for edit, text in zip(edits, heard, strict=True)]
    rows = [["said", *said], ["---"] * (len(edits) + 1), ["heard", *heard]]
    if any(edit.kind != "equal" for edit in edits):
        rows.append(["", *(_MARKS[edit.kind] for edit in edits)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(word: str | None) -> str:
    return _NOTHING if word is None else plain(word)


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"

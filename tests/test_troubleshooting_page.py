"""Every message that docs/troubleshooting.md quotes is one that the package can give."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PAGE = (PROJECT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE)
LEAST = 8  # shorter pieces would be found anywhere


@cache
def texts():
    """Every text in the source, those of f-strings with a gap where a value goes."""
    found = []
    for path in sorted((PROJECT / "sonosco_like").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(part.value if isinstance(part, ast.Constant) else "\0" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def missing_words(message):
    """The pieces between the gaps of a quoted message that no text of the source holds."""
    pieces = [piece.strip(" ,;:") for piece in message.split("...")]
    return [piece for piece in pieces if len(piece) >= LEAST and not any(piece in text for text in texts())]


def test_there_are_messages():
    assert len(MESSAGES) > 20
    assert len(MESSAGES) == PAGE.count("\n### ")


def test_every_quoted_message_is_in_the_source():
    vague = [each for each in MESSAGES if all(len(piece.strip(" ,;:")) < LEAST for piece in each.split("..."))]
    assert vague == [], "These could be any message."
    assert {message: missing for message in MESSAGES if (missing := missing_words(message))} == {}


def test_a_message_that_nobody_gives_would_be_noticed():
    assert missing_words("... has no such thing at all; wait for it, or stop it.") != []

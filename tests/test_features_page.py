"""docs/features.md has every feature that was promised, once, and every test it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[1]
FAMILIES = {"S": 24, "P": 14, "A": 15, "R": 7, "C": 14, "N": 12, "D": 14}
IDS = [f"{family}{number}" for family, count in FAMILIES.items() for number in range(1, count + 1)]
TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def rows_of(page):
    """The cells of each row that begins with an id: id, feature, name, proof."""
    lines = [line for line in page.splitlines() if re.match(r"\| [A-Z]\d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


ROWS = rows_of((PROJECT / "docs" / "features.md").read_text(encoding="utf-8"))


@cache
def names_in(path):
    """Names of the tests of a file, those of classes with the class before them; nothing is imported."""
    names = set()
    for node in ast.parse((PROJECT / path).read_text(encoding="utf-8")).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        names |= {prefix + each.name for each in inner if isinstance(each, ast.FunctionDef)}
    return names


def test_every_id_is_there_once_and_in_order():
    assert [row[0] for row in ROWS] == IDS


def problems_of(row):
    if len(row) != 4 or not all(row):
        return [f"{row[0]}: expected an id, a feature, a name and a proof, got {row}"]
    found = []
    for proof in row[3].split("<br>"):
        match = TEST.fullmatch(proof)
        if match is None and not proof.startswith("not yet"):
            found.append(f"{row[0]}: expected `tests/path.py::test_name` or 'not yet', got {proof}")
        elif match and not (PROJECT / match[1]).exists():
            found.append(f"{row[0]}: there is no {match[1]}")
        elif match and match[2] not in names_in(match[1]):
            found.append(f"{row[0]}: {match[1]} has no {match[2]}")
        elif match and not match[2].split("::")[-1].startswith("test_"):
            found.append(f"{row[0]}: {match[2]} is no test")
    return found


def test_every_feature_has_a_name_and_a_test_that_exists_or_is_not_yet_there():
    found = [problem for row in ROWS for problem in problems_of(row)]
    assert not found, "\n".join(found)

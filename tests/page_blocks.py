"""The fenced blocks of README.md and docs/, and a program that executes the Python of one page.

python page_blocks.py docs/training.md    runs its blocks in order, in one namespace, in the present folder
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

REPOSITORY = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (REPOSITORY / "docs").glob("*.md"))]
NOT_RUN = {"data/librispeech": "a corpus of 960 hours"}  # what a block names, and what it would take to run it
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>.*)\n(?P<text>(?:.*\n)*?)(?P=indent)```\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """The text between two fences, with the line of the page it begins at."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, *languages: str) -> list[Block]:
    """The blocks of a page in these languages, or all, in their order; "" is a fence without a language."""
    content = (REPOSITORY / page).read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(content):
        text = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        line = content.count("\n", 0, match.start("text")) + 1
        found.append(Block(page, line, match["language"].strip(), text))
    return [block for block in found if block.language in languages or not languages]


def run_page(page: str) -> None:
    """Execute the Python of a page, or only compile it where it needs more than there is.

    A traceback names the page and its line.
    """
    module = sys.modules["page"] = ModuleType("page")  # classes are looked up in the module they say they are from
    for block in blocks_of(page, "python"):
        code = compile("\n" * (block.line - 1) + block.text, str(REPOSITORY / page), "exec")
        if not any(needed in block.text for needed in NOT_RUN):
            exec(code, module.__dict__)


if __name__ == "__main__":
    run_page(sys.argv[1])

"""What reading and writing carry along: where they are, what went wrong so far, what they have seen already."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from yaml.nodes import MappingNode, Node, ScalarNode

from sonosco_like.errors import ConfigError, Problem
from sonosco_like.serialization.document import MAX_DEPTH, line_of
from sonosco_like.serialization.scalars import BOOL, FLOAT, INT, NULL, STR, kind_of

if TYPE_CHECKING:
    from sonosco_like.serialization.tensors import TensorReader, TensorWriter

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 60
MAX_PROBLEMS = 100


class Invalid:
    """What decoding returns for a value that has a problem; the problem itself is in the reader's list."""


INVALID = Invalid()


class TooManyProblems(Exception):  # noqa: N818  (ends a reading early; never leaves this package)
    """Raised when MAX_PROBLEMS are noted: a file with so many is not read on."""


def join_path(parts: list[Any] | tuple[Any, ...]) -> str:
    """`trainer.callbacks[0].monitor`, or `models['two words']` for a key that is not a name."""
    text = ""
    for part in parts:
        if isinstance(part, str) and len(part) <= _SHOWN and _IDENTIFIER.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{brief(part)}]" if isinstance(part, str) else f"[{part!r}]"
    return text


class _Place:
    """A position in the object graph and the problems found on the way."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.problem_count = 0
        self.parts: list[Any] = []

    @contextmanager
    def at(self, part: Any) -> Iterator[None]:
        """Step into a field, an index or a key. Loops over fields push and pop `parts` themselves: it is faster."""
        self.parts.append(part)
        try:
            yield
        finally:
            self.parts.pop()

    @property
    def path(self) -> str:
        """Where we are, as a person would write it."""
        return join_path(self.parts)

    @property
    def is_full(self) -> bool:
        """Whether enough problems are known."""
        return len(self.problems) >= MAX_PROBLEMS

    def raise_problems(self) -> None:
        """Raise every problem so far as one error, in the order of the text."""
        if not self.problems:
            return
        found = sorted(dict.fromkeys(self.problems), key=lambda problem: problem.line or 0)
        if self.is_full:
            found.append(Problem("and perhaps more problems", source=self.source))
        raise ConfigError(found)

    def _note(self, problem: Problem) -> None:
        self.problem_count += 1
        if not self.is_full:
            self.problems.append(problem)


def brief(text: str) -> str:
    """A text in quotes, its middle left out if it is long."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


class Reader(_Place):
    """The state of one reading: from nodes to objects."""

    def __init__(self, source: str, tensors: TensorReader | None = None) -> None:
        super().__init__(source)
        self.tensors = tensors
        self.objects: dict[str, Any] = {}  # by path: what a state file may point back to
        self.memo: dict[tuple[int, int], Any] = {}  # (node, converter): one object for all aliases of a node
        self.kept: list[Any] = []  # keeps alive nodes made on the way, which `memo` knows by id

    def problem(self, node: Node, message: str) -> Invalid:
        """Note what is wrong with a node."""
        source = getattr(node, "source", self.source)
        message = getattr(node, "unreadable", message)
        self._note(Problem(message, self.path, source, line_of(node)))
        if self.is_full:
            raise TooManyProblems
        return INVALID

    def expected(self, node: Node, expected: str, hint: str = "") -> Invalid:
        """Note that a node is not what its place wants."""
        return self.problem(node, f"expected {expected}, got {describe(node)}{hint}")

    def too_deep(self, node: Node) -> bool:
        if len(self.parts) <= MAX_DEPTH:
            return False
        self.problem(node, f"is nested deeper than {MAX_DEPTH} levels")
        return True


class Writer(_Place):
    """The state of one writing: from objects to nodes."""

    def __init__(self, source: str, tensors: TensorWriter | None = None, with_state: bool = True) -> None:
        super().__init__(source)
        self.tensors = tensors
        self.with_state = with_state
        self.objects: dict[int, str] = {}  # id to path: objects of the graph that state may point to
        self.covered: set[int] = set()  # ids of modules whose weights are in the state of a module around them
        self.memo: dict[tuple[int, int], Node] = {}
        self.kept: list[Any] = []  # keeps alive what `memo` knows by id

    def problem(self, message: str) -> Node:
        """Note what cannot be written, and return a node so that writing can go on to find the next problem."""
        self._note(Problem(message, self.path, self.source))
        return ScalarNode(NULL, "null")


def describe(node: Node) -> str:
    """What a node holds, for messages."""
    if isinstance(node, ScalarNode):
        text = node.value if len(node.value) <= _SHOWN else node.value[:_SHOWN] + "..."
        kind = kind_of(node)
        if kind == NULL:
            return "nothing (null)"
        if kind in (INT, FLOAT):
            return f"the number {text}"
        return text if kind == BOOL else f"{text!r}" if kind == STR else f"{text!r} tagged {brief(kind)}"
    return "a mapping" if isinstance(node, MappingNode) else "a list"

"""`Document`: the text of a config, parsed once. `dumps` and `loads`: an object graph as one YAML text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sonosco_like.errors import ConfigError, Problem
from sonosco_like.serialization.base_file import parse_with_base
from sonosco_like.serialization.converter import INVALID, Reader, TooManyProblems, Writer
from sonosco_like.serialization.nodes import (
    Plain,
    anchor_names,
    join_path,
    node_at,
    node_text,
    plain_node,
    plain_value,
    split_path,
    tagged,
    walk_nodes,
)
from sonosco_like.serialization.types import converter_for
from sonosco_like.serialization.yaml_text import MAP, PLAIN, SEQ, STR, UNREADABLE, line_of, parse, write

if TYPE_CHECKING:
    from sonosco_like.serialization.tensors import TensorReader

T = TypeVar("T")
ValuePath = str | Sequence[str | int]


class Document:
    """The text of a config, parsed once: its values by path, changes of them, and the object it describes.

        document = Document.read(Path("las.yaml"), overrides=["trainer.epochs=3"])
        document.get("trainer.epochs")              # 3
        document.get("trainer.callbacks")           # a list of dictionaries
        document.set("trainer.device", "cpu")
        document.leaves()["trainer.optimizer.lr"]   # "0.001", as it is written
        experiment = document.build(Experiment)     # errors name file, line and path

    A path is `trainer.callbacks[0].patience`, or a tuple of its parts; the empty path stands for the whole text.
    """

    def __init__(self, root: Node, source: str, tensors: TensorReader | None = None) -> None:
        self.source = source
        self.root = root
        self._tensors = tensors
        self._plain: dict[int, Any] = {}

    @classmethod
    def parse(
        cls,
        text: str | bytes,
        source: str = "<text>",
        overrides: Iterable[str] = (),
        tensors: TensorReader | None = None,
    ) -> Document:
        """The document of a text, with the overrides `a.b[0].c=value` in it. `source` names it in messages.

        Raises ConfigError for what is not one YAML document, and for all overrides that do not fit.
        """
        return cls(apply_overrides(parse(text, source), overrides), source, tensors)

    @classmethod
    def read(cls, path: Path, overrides: Iterable[str] = (), source: str | None = None) -> Document:
        """The document of a file, merged over its `base` if it names one.

        A link is refused with StorageError; resolve the path first where links are fine.
        """
        source = source or str(path)
        return cls(apply_overrides(parse_with_base(path, source), overrides), source)

    @classmethod
    def of(cls, value: Any, *, state: bool = False) -> Document:
        """The document of an object graph. Raises ConfigError, which names all that cannot be written."""
        source = type(value).__qualname__
        writer = Writer(source, with_state=state)
        node = converter_for(Any).encode(value, writer)
        writer.raise_problems()
        return cls(tagged(node, "!dict") if isinstance(value, dict) else node, source)

    def get(self, path: ValuePath = ()) -> Plain:
        """The value at a path as plain data, the same object for all its aliases; None if there is no value."""
        node = self._node(path)
        try:
            return None if node is None else plain_value(node, self._plain)
        except ValueError as error:
            raise ConfigError([Problem(f"{error}", join_path(split_path(path)), self.source)]) from None

    def set(self, path: ValuePath, value: Plain) -> None:
        """Put plain data at a path, and make the missing mappings on the way; ConfigError if the way is blocked."""
        parts = split_path(path)
        put(self.root, parts, plain_node(value, self._node(path) or self.root), join_path(parts))
        self._plain.clear()

    def override(self, overrides: Iterable[str]) -> None:
        """Apply the overrides `a.b[0].c=value`. Raises ConfigError for all that do not fit."""
        apply_overrides(self.root, overrides)
        self._plain.clear()

    def leaves(self) -> dict[str, str]:
        """The text of each number, text, truth value and null by its path; what an alias repeats is there once.

        An empty list or mapping is `{}`.
        """
        first: dict[int, tuple[Any, ...]] = {}
        return {
            join_path(parts): str(node.value) if isinstance(node, ScalarNode) else "{}"
            for parts, node in walk_nodes(self.root, first=first)
            if isinstance(node, ScalarNode) or not node.value
        }

    def describe(self, path: ValuePath = ()) -> str:
        """The value at a path, for messages: `the number 3`, `'cpu'`, `a list`, or `nothing`."""
        node = self._node(path)
        return "nothing" if node is None else node_text(node)

    def place(self, path: ValuePath) -> tuple[str, int | None]:
        """The file and the line where the value at a path was given; no line if it was not given in a file."""
        node = self._node(path)
        return (self.source, None) if node is None else (getattr(node, "source", self.source), line_of(node))

    def text(self, path: ValuePath = ()) -> str:
        """The YAML of the value at a path; an empty text if there is none."""
        node = self._node(path)
        return "" if node is None else write(node, anchor_names(node)).removesuffix("...\n")

    def normalise(self, path: ValuePath, expected: Any) -> None:
        """Write a value as one of the expected type would be saved: 2 as 2.0 where a float is wanted.

        What is not there, or cannot be read as that type, is left as it is.
        """
        node = self._node(path)
        if node is None:
            return
        with suppress(ConfigError):
            writer = Writer(self.source, with_state=False)
            written = converter_for(expected).encode(decode(node, expected, Reader(self.source)), writer)
            writer.raise_problems()
            put(self.root, split_path(path), written, str(path))
            self._plain.clear()

    @overload
    def build(self, expected: type[T]) -> T: ...
    @overload
    def build(self, expected: Any = ...) -> Any: ...
    def build(self, expected: Any = None) -> Any:
        """The object that the document describes, of the expected type.

        Raises ConfigError with every problem at once, each with line and path.
        """
        return decode(self.root, expected, Reader(self.source, self._tensors))

    def _node(self, path: ValuePath) -> Node | None:
        return node_at(self.root, split_path(path))


def dumps(value: Any, *, state: bool = True) -> str:
    """The YAML of an object graph: every constructor field, and with `state` what a run changed.

    Raises ConfigError naming everything that cannot be written. Tensors never become text: a graph with weights is
    saved to a folder, or written with `state=False`.
    """
    root = Document.of(value, state=state).root
    return write(root, None if state else anchor_names(root))  # names of anchors are for people, and take time


@overload
def loads(text: str | bytes, expected: type[T], *, source: str = ..., overrides: Iterable[str] = ...) -> T: ...
@overload
def loads(text: str | bytes, expected: Any = ..., *, source: str = ..., overrides: Iterable[str] = ...) -> Any: ...
def loads(text: str | bytes, expected: Any = None, *, source: str = "<text>", overrides: Iterable[str] = ()) -> Any:
    """The object graph of a YAML text. `expected` is the type it must have; `overrides` are `a.b[0].c=value`.

    Raises ConfigError with every problem at once, each with line and path.
    """
    return Document.parse(text, source, overrides).build(expected)


def decode(node: Node, expected: Any, reader: Reader) -> Any:
    """The object of the expected type that a node describes. Raises ConfigError with all problems."""
    hint = _top_level(node, expected)
    value: Any = INVALID
    with suppress(TooManyProblems):
        value = converter_for(hint).decode(node, reader)
    reader.raise_problems()
    if value is INVALID:
        raise ConfigError([Problem("does not describe an object that can be built", source=reader.source)])
    return value


def _top_level(node: Node, expected: Any) -> Any:
    """At the top, a mapping is an object: a forgotten `class` is an error there, not a dictionary."""
    if expected is not None:
        return expected
    untagged = isinstance(node, MappingNode) and node.tag == MAP
    return object if untagged and all(key.value != "function" for key, _ in node.value) else Any


def apply_overrides(root: Node, overrides: Iterable[str]) -> Node:
    """The tree with all overrides applied. Raises ConfigError for all that do not fit."""
    problems: list[Problem] = []
    for override in overrides:
        try:
            _apply(root, override)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return root


def quote_override(text: str) -> str:
    """A text as a value that is this text for any field, blanks and signs included."""
    return str(yaml.dump(text, default_style='"', width=math.inf)).removesuffix("\n")


def _apply(root: Node, override: str) -> None:
    path, equals, text = override.partition("=")
    steps = _steps(path.strip())
    if not equals or not steps:
        _refuse(override, "expected path=value, for example trainer.callbacks[0].patience=3")
    value = _value(text, f"--set {path}")
    _mark(value, f"--set {path}")
    put(root, steps, value, override)


def put(root: Node, steps: list[str | int], value: Node, override: str) -> None:
    """Put a value at its path, and make the missing mappings on the way. `override` names it in messages."""
    node = root
    for step, following in itertools.pairwise(steps):
        node = _enter(node, step, following, override)
    _put(node, steps[-1], value, override)


def _value(text: str, source: str) -> Node:
    """The value as YAML; unless quotes or a tag say what it is, its `raw` text is kept beside it."""
    try:
        node = parse(text if text.strip() else "null", source)
    except ConfigError as error:
        if not _is_unicode(text):
            raise
        node = ScalarNode(UNREADABLE, text)
        node.unreadable = error.problems[0].message  # type: ignore[attr-defined]
    if node.tag in (PLAIN, MAP, SEQ, UNREADABLE):
        node.raw = text  # type: ignore[attr-defined]
    return node


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _steps(path: str) -> list[str | int]:
    try:
        return split_path(path)
    except ValueError:
        return []


def _enter(node: Node, step: str | int, following: str | int, override: str) -> Node:
    if isinstance(step, int):
        return _items(node, step, override)[step]
    for key, value in _entries(node, step, override):
        if isinstance(key, ScalarNode) and key.value == step:
            return value
    if isinstance(following, int):
        _refuse(override, f"there is no list {step!r}")
    made = MappingNode(MAP, [], node.start_mark, node.end_mark)
    node.value.append((ScalarNode(STR, step, node.start_mark, node.end_mark), made))
    return made


def _put(node: Node, step: str | int, value: Node, override: str) -> None:
    if isinstance(step, int):
        items = _items(node, step, override, appending=True)
        items[step : step + 1] = [value]
        return
    entries = _entries(node, step, override)
    for index, (key, _) in enumerate(entries):
        if isinstance(key, ScalarNode) and key.value == step:
            entries[index] = (key, value)
            return
    entries.append((ScalarNode(STR, step, value.start_mark, value.end_mark), value))


def _items(node: Node, index: int, override: str, appending: bool = False) -> list[Node]:
    if not isinstance(node, SequenceNode):
        _refuse(override, f"[{index}] needs a list there")
    if index >= len(node.value) + appending:
        _refuse(override, f"the list has {len(node.value)} values, so there is no [{index}]")
    return node.value  # type: ignore[no-any-return]


def _entries(node: Node, name: str, override: str) -> list[tuple[Node, Node]]:
    if not isinstance(node, MappingNode):
        _refuse(override, f"{name!r} needs a mapping there")
    return node.value  # type: ignore[no-any-return]


def _mark(node: Node, source: str) -> None:
    """Have problems with this value point at the command line, not at a line of the file."""
    stack = [node]
    while stack:
        current = stack.pop()
        if getattr(current, "source", None) is None:
            current.source = source  # type: ignore[attr-defined]
            children = current.value if not isinstance(current, ScalarNode) else []
            stack += [part for child in children for part in (child if isinstance(child, tuple) else (child,))]


def _refuse(override: str, message: str) -> NoReturn:
    raise ConfigError([Problem(message, source=f"--set {override[:100]}")])

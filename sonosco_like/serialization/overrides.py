"""`--set a.b[0].c=value`: changes to a config before it is read, held to the same checks.

All that stands after the first `=` is the value. It is read as YAML, but where a field takes text it is the text as it
was given, with its blanks, `#` and `: `; unless it is in quotes, which then say where the text begins and ends.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from typing import NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from sonosco_like.errors import ConfigError, Problem
from sonosco_like.serialization.document import parse
from sonosco_like.serialization.scalars import MAP, PLAIN, SEQ, STR, UNREADABLE

_STEP = re.compile(r"(?:^|\.)([^.\[\]=]+)|\[(\d{1,9})\]")


def apply_overrides(root: Node, overrides: Iterable[str]) -> Node:
    """The tree with each override put in its place. Raises ConfigError for all that do not fit."""
    problems: list[Problem] = []
    for override in overrides:
        try:
            _apply(root, override)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return root


def quoted(text: str) -> str:
    """A text as a value that is this text for any field, blanks and signs included."""
    return str(yaml.dump(text, default_style='"', width=math.inf)).removesuffix("\n")


def _apply(root: Node, override: str) -> None:
    path, equals, text = override.partition("=")
    steps = _steps(path.strip())
    if not equals or not steps:
        _refuse(override, "expected path=value, for example trainer.callbacks[0].patience=3")
    value = _value(text, f"--set {path}")
    _mark(value, f"--set {path}")
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
    found = list(_STEP.finditer(path))
    if "".join(match.group(0) for match in found) != path:
        return []
    return [match.group(1) if match.group(1) is not None else int(match.group(2)) for match in found]


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

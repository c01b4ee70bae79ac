"""Text to YAML nodes and back: safe, bounded, with the line of every value.

Nodes are all we take from PyYAML: no constructor ever runs, so no tag can build anything. Aliases are shared nodes and
are never expanded, so an alias bomb is as small as its text.

Plain scalars follow the core schema of YAML 1.2. PyYAML follows YAML 1.1, where `no` is false, `1e-3` is text and
`1:30` is ninety. Here `no` is text, `1e-3` a number, and a value that the two versions read differently is always
written in quotes.
"""

from __future__ import annotations

import functools
import json
import re
from enum import Enum
from typing import Any, Final, NoReturn

import yaml
from yaml.nodes import Node, ScalarNode, SequenceNode
from yaml.resolver import Resolver
from yaml.serializer import Serializer

from sonosco_like.errors import ConfigError, Problem, as_sentence
from sonosco_like.serialization.files import MAX_BYTES

PLAIN: Final = "plain"  # the tag that reading gives to a scalar without quotes and without a tag
UNREADABLE: Final = "unreadable"  # the tag of a value given on the command line that is no YAML, but may be text
STR: Final = "tag:yaml.org,2002:str"
INT: Final = "tag:yaml.org,2002:int"
FLOAT: Final = "tag:yaml.org,2002:float"
BOOL: Final = "tag:yaml.org,2002:bool"
NULL: Final = "tag:yaml.org,2002:null"
SEQ: Final = "tag:yaml.org,2002:seq"
MAP: Final = "tag:yaml.org,2002:map"


class Kind(Enum):
    """The kinds of scalars, with their tags. OTHER has a tag of this format, or a tag that does not fit."""

    TEXT = STR
    INT = INT
    FLOAT = FLOAT
    BOOL = BOOL
    NULL = NULL
    OTHER = ""


_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN",
)
_YAML_1_1: Any = Resolver()
_KINDS = {kind.value: kind for kind in (Kind.INT, Kind.FLOAT, Kind.BOOL, Kind.NULL)}


def kind_of(node: ScalarNode) -> Kind:
    """The kind of a scalar: by its text if it has no tag, otherwise by its tag, which must fit its text."""
    tag: str = node.tag
    if tag == PLAIN:
        return plain_kind(node.value)
    if tag == STR:
        return Kind.TEXT
    kind = _KINDS.get(tag, Kind.OTHER)
    found = plain_kind(node.value) if kind is not Kind.OTHER else kind
    return kind if found is kind or (found, kind) == (Kind.INT, Kind.FLOAT) else Kind.OTHER


def plain_kind(text: str) -> Kind:
    """The kind of a scalar without quotes and tag."""
    if text in _NULLS:
        return Kind.NULL
    if text in _BOOLS:
        return Kind.BOOL
    if _INT.fullmatch(text):
        return Kind.INT
    if _FLOAT.fullmatch(text):
        return Kind.FLOAT
    return Kind.TEXT


@functools.lru_cache(maxsize=4096)
def written_tag(text: str) -> str:
    """The tag that readers of YAML 1.1 and 1.2 give to a text without quotes; only what is STR to both needs none."""
    kind = plain_kind(text)
    return str(_YAML_1_1.resolve(ScalarNode, text, (True, False))) if kind is Kind.TEXT else kind.value


def read_int(text: str) -> int:
    """The number a scalar of kind INT stands for; raises ValueError past the digits Python converts safely."""
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def read_float(text: str) -> float:
    """The number a scalar of kind FLOAT or INT stands for."""
    lowered = text.lower()
    if lowered.endswith((".inf", ".nan")):
        return float(lowered.replace(".", ""))
    return float(text) if lowered[:2] not in ("0o", "0x") else float(int(text, 0))


def write_float(value: float) -> str:
    """The shortest text that is read as exactly this number, with a point, so that YAML 1.1 reads a float too."""
    text = float.__repr__(value)
    if text in ("inf", "-inf", "nan"):
        return text.replace("inf", ".inf").replace("nan", ".nan")
    mantissa, mark, exponent = text.partition("e")
    return mantissa + ("" if "." in mantissa else ".0") + mark + exponent


MAX_NODES = 1_000_000
MAX_DEPTH = 100
_MAX_LEVELS = MAX_DEPTH + 10  # the files of a checkpoint wrap a graph in a few levels of their own

_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _ExcessError(yaml.YAMLError):
    """The text is deeper or larger than allowed."""


class _Loader(_BaseLoader):  # type: ignore[misc]
    """Composes nodes without guessing what plain scalars mean; the field's type decides that.

    The composer calls `descend_resolver` before each node and `ascend_resolver` after it. Counting there stops a text
    that is too deep before the C stack ends, and one that is too large before the memory does.
    """

    depth = 0
    nodes = 0

    def resolve(self, kind: type, value: Any, implicit: Any) -> str:
        if kind is ScalarNode:
            return PLAIN if implicit[0] else STR
        return SEQ if kind is SequenceNode else MAP

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        self.depth += 1
        self.nodes += 1
        if self.depth > _MAX_LEVELS:
            raise _ExcessError(f"is nested deeper than {MAX_DEPTH} levels")
        if self.nodes > MAX_NODES:
            raise _ExcessError(f"holds more than {MAX_NODES:,} values")

    def ascend_resolver(self) -> None:
        self.depth -= 1


class _Dumper(_BaseDumper):  # type: ignore[misc]
    """Writes a scalar without quotes only where every reader takes it for what it is."""

    def resolve(self, kind: type, value: Any, implicit: Any) -> str:
        if kind is ScalarNode:
            return written_tag(value) if implicit[0] else STR
        return SEQ if kind is SequenceNode else MAP


class _NamingDumper(Serializer, _Dumper):
    """Writes anchors with given names."""

    def __init__(self, anchors: dict[int, str], *args: Any, **options: Any) -> None:
        _Dumper.__init__(self, *args, **options)
        Serializer.__init__(self)
        self._anchors = anchors

    def generate_anchor(self, node: Node) -> str:
        return self._anchors[id(node)]


def parse(text: str | bytes, source: str) -> Node:
    """The root node of a text. Raises ConfigError for what is not a single, bounded YAML document."""
    text = _decode(text, source)
    if len(text) > MAX_BYTES:
        _refuse(f"has {len(text):,} characters, more than the {MAX_BYTES:,} allowed.", source)
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        _refuse(f"is not valid YAML: {as_sentence(reason)}", source, mark.line + 1 if mark else None)
    except _ExcessError as error:
        _refuse(as_sentence(error), source)
    except yaml.YAMLError as error:
        _refuse(f"is not valid YAML: {as_sentence(error)}", source)
    except RecursionError:
        _refuse(f"is nested deeper than {MAX_DEPTH} levels.", source)
    except (ValueError, UnicodeError, OverflowError) as error:
        _refuse(f"is not valid YAML: {as_sentence(error)}", source)
    if node is None:
        _refuse("is empty.", source)
    return node  # type: ignore[no-any-return]


def write(node: Node, anchors: dict[int, str] | None = None) -> str:
    """The text of a node tree; a node that occurs twice becomes an anchor, with its name in `anchors` by its id.

    Without names, the serializer in C calls them id001, id002 and so on. It is several times as fast.
    """

    def dumper(*args: Any, **options: Any) -> _Dumper:
        return _NamingDumper(anchors, *args, **options) if anchors else _Dumper(*args, **options)

    return str(yaml.serialize(node, Dumper=dumper, allow_unicode=True, width=120))


def quote_text(text: str) -> str:
    """A text as a value for people to read: plain where that is safe, otherwise in quotes."""
    is_safe = re.fullmatch(r"[A-Za-z_./][\w./-]*", text, re.ASCII) and plain_kind(text) is Kind.TEXT
    return text if is_safe else json.dumps(text, ensure_ascii=False)


def line_of(node: Node) -> int | None:
    """The line a node was read from, counted from 1; None for a node that was made here."""
    return node.start_mark.line + 1 if node.start_mark is not None else None


def _decode(text: str | bytes, source: str) -> str:
    try:
        if isinstance(text, bytes):
            return text.decode("utf-8-sig")
        text.encode("utf-8")  # lone surrogates
        return text
    except UnicodeError as error:
        _refuse(f"is not UTF-8 text: {as_sentence(error)}", source)


def _refuse(message: str, source: str, line: int | None = None) -> NoReturn:
    raise ConfigError([Problem(message, source=source, line=line)])

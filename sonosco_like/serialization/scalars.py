"""What a plain YAML scalar means: the core schema of YAML 1.2.

PyYAML follows YAML 1.1, where `no` is false, `1e-3` is text and `1:30` is ninety. Here `no` is text, `1e-3` a number,
and a value that the two versions read differently is always written in quotes.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

PLAIN: Final = "plain"  # the tag that reading gives to a scalar without quotes and without a tag of its own
UNREADABLE: Final = "unreadable"  # the tag of a value given on the command line that is no YAML, but may be text
STR: Final = "tag:yaml.org,2002:str"
INT: Final = "tag:yaml.org,2002:int"
FLOAT: Final = "tag:yaml.org,2002:float"
BOOL: Final = "tag:yaml.org,2002:bool"
NULL: Final = "tag:yaml.org,2002:null"
SEQ: Final = "tag:yaml.org,2002:seq"
MAP: Final = "tag:yaml.org,2002:map"

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN",
)
_YAML_1_1: Any = Resolver()


def kind_of(node: ScalarNode) -> str:
    """STR, INT, FLOAT, BOOL or NULL."""
    tag: str = node.tag
    if tag == PLAIN:
        return plain_kind(node.value)
    kind = plain_kind(node.value) if tag in (INT, FLOAT, BOOL, NULL) else tag
    return tag if kind in (tag, INT) and (kind == tag or tag == FLOAT) else f"mismatched {tag}"


def plain_kind(text: str) -> str:
    """The kind of an unquoted scalar."""
    if text in _NULLS:
        return NULL
    if text in _BOOLS:
        return BOOL
    if _INT.fullmatch(text):
        return INT
    if _FLOAT.fullmatch(text):
        return FLOAT
    return STR


@functools.lru_cache(maxsize=4096)
def written_kind(text: str) -> str:
    """The kind every reader agrees on, of YAML 1.1 or 1.2; what is STR in both may be written without quotes."""
    kind = plain_kind(text)
    return kind if kind != STR else str(_YAML_1_1.resolve(ScalarNode, text, (True, False)))


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
    """The shortest text that reads back as exactly this number, with a point so that YAML 1.1 sees a float too."""
    text = float.__repr__(value)
    if text in ("inf", "-inf", "nan"):
        return text.replace("inf", ".inf").replace("nan", ".nan")
    mantissa, mark, exponent = text.partition("e")
    return mantissa + ("" if "." in mantissa else ".0") + mark + exponent

"""Changes to texts as accidents and attackers make them: of bytes, and of the structure of a YAML document."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import yaml
from generated_graphs import ODD_TEXTS
from yaml.nodes import MappingNode, ScalarNode, SequenceNode

PIECES = [
    b"&a ", b"*a", b"*a\n", b"!!int ", b"!!python/object/apply:os.system ", b"!path ", b"!tuple ", b"!tensor x",
    b"!object ''", b"<<: *a\n", b"? ", b": ", b"- ", b"[", b"]", b"{", b"}",
    b"\n", b"\r", b"\t", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8", b"---\n", b"...\n",
    b"%TAG ! x\n", b"|\n", b">-\n", b"'", b'"', b"\\", b"#", b"~", b"null",
    b".nan", b"1e999", b"-0", b"0x", b"9" * 5000, b"class: ", b"state: ", b"function: ", b"@2", b"@0", b"@99999",
    b"!!bool maybe", b"  ", b", ", b"\xed\xa0\x80",
]  # fmt: skip
TAGS = ["!path", "!tuple", "!set", "!dict", "!object", "!tensor", "!class", "tag:yaml.org,2002:int", "!x"]
WORDS = [*ODD_TEXTS, "9" * 5000, "1e999", "-1", "0", "generated_graphs.Leaf", "generated_graphs.scale", "_inductor"]
KEYS = ["class", "function", "state", "<<", "name", "x"]


def mutate_bytes(content: bytes, chance: random.Random) -> bytes:
    """Cut, insert, replace, repeat or flip a few bytes."""
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 5, 20])):
        start = chance.randrange(len(changed) + 1)
        end = min(len(changed), start + chance.choice([0, 1, 1, 2, 8, 60]))
        way = chance.randrange(6)
        if way == 0:
            changed[start:end] = b""
        elif way == 1:
            changed[start:start] = chance.choice(PIECES)
        elif way == 2:
            changed[start:end] = chance.choice(PIECES)
        elif way == 3 and start < len(changed):
            changed[start] ^= 1 << chance.randrange(8)
        elif way == 4:
            changed[start:start] = changed[end : end + chance.choice([3, 30, 200])]
        else:
            changed[start:end] = chance.randbytes(end - start)
    return bytes(changed)


def _nodes(node: Any) -> Iterator[Any]:
    seen: set[int] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, MappingNode):
            stack += [part for pair in current.value for part in pair]
        elif isinstance(current, SequenceNode):
            stack += current.value


def mutate_structure(text: str, chance: random.Random) -> str:
    """Move, share, swap, retag and replace parts of a document that stays well-formed YAML."""
    root = yaml.compose(text, yaml.CSafeLoader)
    for _ in range(chance.choice([1, 1, 2, 3])):
        nodes = list(_nodes(root))
        _change_node(chance.choice(nodes), nodes, chance)
    with contextlib.suppress(yaml.YAMLError):  # an alias as key, for one, has no text
        return str(yaml.serialize(root, Dumper=yaml.CSafeDumper))
    return text


def _change_node(target: Any, nodes: list[Any], chance: random.Random) -> None:
    other = chance.choice(nodes)
    if chance.random() < 0.2:
        target.tag = chance.choice([*TAGS, other.tag])
    elif isinstance(target, ScalarNode):
        target.value = chance.choice(WORDS)
        target.style = chance.choice([None, "'", '"'])
    elif isinstance(target, MappingNode):
        key = ScalarNode("tag:yaml.org,2002:str", chance.choice(KEYS))
        target.value.insert(0, chance.choice([(key, other), (other, other), *target.value[:1]]))
    elif chance.random() < 0.5:
        target.value.append(other)
    else:
        target.value = [chance.choice(nodes) for _ in range(chance.randrange(4))]

"""Generated object graphs: classes with every field type, values for them, and how to compare two graphs."""

from __future__ import annotations

import enum
import functools
import math
import struct
from collections.abc import Callable
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Literal

import numpy
import torch
from hypothesis import strategies as st

from sonosco_like.serialization import serializable, state


class Colour(enum.Enum):
    RED = "red"
    NO = "no"
    ODD = "1e-3"


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2.5


@serializable
def scale(value: float = 0.0, factor: float = 1.0, label: str = "") -> float:
    return value * factor


@serializable
def shift(value: float = 0.0) -> float:
    return value + 1


@serializable
class Leaf:
    weight: float = 0.0
    label: str = ""
    visits: int = state(0)


@serializable
class OtherLeaf:
    weight: float = 0.0


@serializable
class Everything:
    """One field of each type that the issue names."""

    flag: bool
    count: int
    ratio: float
    name: str
    nothing: None
    place: Path
    colour: Colour
    size: Size
    mode: Literal["fast", "null", 3, True, None]
    maybe: int | None
    either: bool | int | float | str | None
    text_or_path: str | Path
    listed: list[str]
    pair: tuple[int, str]
    ratios: tuple[float, ...]
    words: set[str]
    numbers: set[int]
    table: dict[str, float]
    groups: dict[int, list[Path | None]]
    by_colour: dict[Colour, tuple[bool, ...]]
    function: Callable[..., float]
    device: torch.device
    dtype: torch.dtype
    part: Leaf | OtherLeaf | None
    anything: Any


@serializable
class Node:
    """A part of a graph: refers to others in every way a constructor field can, and in its state."""

    name: str = ""
    children: list[Node] = field(default_factory=list)
    by_name: dict[str, Node] = field(default_factory=dict)
    pair: tuple[Node, Leaf] | None = None
    either: Node | Leaf | dict[str, Any] | str | None = None
    anything: Any = None
    seen: int = state(0)
    best: float = state(math.inf)
    memory: list[Any] = state([])
    friend: Node | Leaf | None = state(None)


@serializable
class Holder:
    """State without a type of its own: whatever a test puts in."""

    content: Any = state(None)
    more: Any = state(None)


ODD_TEXTS = [
    "", " ", "  two  ", "\n", "\n\n", "a\n", "a\n\n\n", "\na", " a\n b\n  c \n", "trailing \nblanks  \n \n",
    "tab\there", "\t", "a\r\nb", "\r",
    "nel\x85here", "a\x85", "\x85\x85", "line\u2028separator", "\u2028", "para\u2029graph\u2029", "\ufeff",
    "\ufeffmark", "in\ufeffside", "\x00", "\x07\x1b[31m",
    "\x7f\x80\x9f", "\ufffe\uffff", "😀", "👩‍👩‍👧 \u202e", "日本語", "é", "e\u0301", "yes", "no", "on", "off", "y", "n",
    "true", "True", "FALSE", "null", "~",
    "Null", "1", "-1", "1e-3", "1_000", "0o7", "0x1F", "017", "0b1", "1:30", "190:20:30", ".5", "5.", ".inf", "-.INF",
    ".nan", "NaN", "inf", "=", "<<", "<", "2001-01-01",
    "2001-12-14t21:59:43.10-05:00", "- a", "-", "--- a", "---", "...", "? b", "?", ": c", ":", "a: b", "a:", "#",
    " # d", "a #b", "&a", "*a", "!a", "!!int 3", "|", ">", "%a",
    "@a", "`a`", "'", "''", '"', '""', "\\", "\\n", "[a", "]", "{a: b}", "}", ",", "a,b", "${oc.env:HOME}", "{{ x }}",
    "!tensor x", "class", "function", "state",
    "x" * 300, "word " * 60, "a\n" * 60, "  indented\n" * 20, "long " * 10 + "\n" + "x" * 200 + "\n   y\n",
    "\n" + "z" * 50, "q" * 50 + "\n ", "\t\n" * 30,
    " " * 200, "u\u2028" * 30 + "\n" + "v" * 40, "ends with return\r\n" * 10,
]  # fmt: skip


def texts() -> st.SearchStrategy[str]:
    """Text of every kind that UTF-8 has, and what YAML is known to stumble over."""
    characters = st.characters(exclude_categories=("Cs",))
    awkward = st.text(
        st.sampled_from("a \n\t\r\x85\u2028\u2029\ufeff:#-'\"\\[]{},&*!|>%@`?~=<1.e\x00\x1b😀"), max_size=80
    )
    return st.sampled_from(ODD_TEXTS) | st.text(characters, max_size=60) | awkward


def integers() -> st.SearchStrategy[int]:
    return st.integers() | st.integers(-(2**200), 2**200) | st.sampled_from([0, -1, 2**63, -(2**64)])


def floats() -> st.SearchStrategy[float]:
    special = st.sampled_from(
        [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, -2.2e-308, 1e16, 1e22, 123456789.0, 0.1]
    )
    return special | st.floats(allow_nan=False)


def devices() -> st.SearchStrategy[torch.device]:
    return st.sampled_from(["cpu", "meta", "cuda", "cuda:1", "mps"]).map(torch.device)


def dtypes() -> st.SearchStrategy[torch.dtype]:
    return st.sampled_from(sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str))


def functions() -> st.SearchStrategy[Callable[..., float]]:
    partials = st.builds(lambda factor, label: functools.partial(scale, factor=factor, label=label), floats(), texts())
    return st.sampled_from([scale, shift]) | partials


def keys() -> st.SearchStrategy[Any]:
    """What may be a key of a dictionary or a member of a set."""
    numbers = integers() | st.floats(allow_nan=False)
    return st.none() | st.booleans() | numbers | texts() | texts().map(Path)


def scalars() -> st.SearchStrategy[Any]:
    simple = st.none() | st.booleans() | integers() | floats() | texts() | texts().map(Path)
    return simple | devices() | dtypes() | functions()


def anything(leaves: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Any]:
    """Values for a field of type `Any`: nested containers of scalars."""

    def around(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        several = st.lists(inside, max_size=4)
        sets = st.lists(keys(), max_size=4)
        tables = st.dictionaries(keys(), inside, max_size=4)
        return several | several.map(tuple) | tables | sets.map(set)

    return st.recursive(leaves if leaves is not None else scalars(), around, max_leaves=8)


def leaves() -> st.SearchStrategy[Leaf | OtherLeaf]:
    return st.builds(Leaf, weight=floats(), label=texts()) | st.builds(OtherLeaf, weight=floats())


def everythings() -> st.SearchStrategy[Everything]:
    return st.builds(
        Everything, flag=st.booleans(), count=integers(), ratio=floats(), name=texts(), nothing=st.none(),
        place=texts().map(Path), colour=st.sampled_from(Colour), size=st.sampled_from(Size),
        mode=st.sampled_from(["fast", "null", 3, True, None]), maybe=st.none() | integers(),
        either=st.booleans() | integers() | floats() | texts() | st.none(),
        text_or_path=texts() | texts().map(Path), listed=st.lists(texts(), max_size=5),
        pair=st.tuples(integers(), texts()), ratios=st.lists(floats(), max_size=5).map(tuple),
        words=st.sets(texts(), max_size=5), numbers=st.sets(integers(), max_size=5),
        table=st.dictionaries(texts(), floats(), max_size=5),
        groups=st.dictionaries(integers(), st.lists(st.none() | texts().map(Path), max_size=3), max_size=3),
        by_colour=st.dictionaries(st.sampled_from(Colour), st.lists(st.booleans(), max_size=3).map(tuple)),
        function=functions(), device=devices(), dtype=dtypes(), part=st.none() | leaves(), anything=anything(),
    )  # fmt: skip


@st.composite
def graphs(draw: st.DrawFn, with_state: bool = True, cycles_in_state: bool = False) -> Node:
    """A graph of nodes that share parts: each node may use every earlier one, in several places."""
    ends = draw(st.lists(st.builds(Leaf, weight=floats(), label=texts()), min_size=1, max_size=3))
    nodes: list[Node] = []
    for _ in range(draw(st.integers(1, 5))):
        earlier = st.sampled_from(nodes) if nodes else st.nothing()
        end = st.sampled_from(ends)
        node = Node(
            name=draw(texts()),
            children=draw(st.lists(earlier, max_size=3)) if nodes else [],
            by_name=draw(st.dictionaries(texts(), earlier, max_size=2)) if nodes else {},
            pair=draw(st.none() | st.tuples(earlier, end)),
            either=draw(st.none() | earlier | end | texts() | st.dictionaries(texts(), scalars(), max_size=2)),
            anything=draw(anything(scalars() | earlier | end)),
        )
        nodes.append(node)
    nodes[-1].children.extend(nodes[:-1])
    if with_state:
        _change_state(draw, nodes, ends, cycles_in_state)
    return nodes[-1]


def _change_state(draw: st.DrawFn, nodes: list[Node], ends: list[Leaf], cycles: bool) -> None:
    for index, node in enumerate(nodes):
        others = nodes if cycles else nodes[:index]
        known = st.sampled_from(others) if others else st.nothing()
        node.seen = draw(integers())
        node.best = draw(floats())
        node.memory = draw(st.lists(anything(scalars() | known | st.sampled_from(ends)), max_size=2))
        node.friend = draw(st.none() | known | st.sampled_from(ends) | st.builds(Leaf, label=texts()))
    for end in ends:
        end.visits = draw(integers())


def assert_same_graph(one: Any, two: Any) -> None:
    """Equal in type and value down to the bits, and shared in `two` exactly where shared in `one`."""
    _Comparison().compare(one, two, "top")


class _Comparison:
    def __init__(self) -> None:
        self.there: dict[int, int] = {}
        self.back: dict[int, int] = {}

    def compare(self, one: Any, two: Any, path: str) -> None:
        assert type(one) is type(two), f"{path}: {one!r} became {two!r}"
        if self._was_seen(one, two, path):
            return
        if isinstance(one, float):
            assert struct.pack("d", one) == struct.pack("d", two), f"{path}: {one!r} became {two!r}"
        elif isinstance(one, (torch.Tensor, numpy.ndarray)):
            assert_same_bits(torch.as_tensor(one), torch.as_tensor(two))
        elif isinstance(one, (list, tuple)):
            assert len(one) == len(two), path
            for index, pair in enumerate(zip(one, two, strict=True)):
                self.compare(*pair, f"{path}[{index}]")
        elif isinstance(one, dict):
            self.compare(tuple(one), tuple(two), f"{path}.keys")
            for key in one:
                self.compare(one[key], two[key], f"{path}[{key!r}]")
        elif isinstance(one, functools.partial):
            assert (one.func, one.args) == (two.func, two.args), path
            self.compare(one.keywords, two.keywords, path)
        elif hasattr(type(one), "__dataclass_fields__"):
            for each in fields(one):
                self.compare(getattr(one, each.name), getattr(two, each.name), f"{path}.{each.name}")
        else:
            assert one == two, f"{path}: {one!r} became {two!r}"

    def _was_seen(self, one: Any, two: Any, path: str) -> bool:
        is_object = hasattr(type(one), "__dataclass_fields__")
        if not is_object and not isinstance(one, (list, dict, set, torch.Tensor, numpy.ndarray)):
            return False  # without identity worth keeping
        seen = id(one) in self.there or id(two) in self.back
        if seen:
            kept = self.there.get(id(one)) == id(two) and self.back.get(id(two)) == id(one)
            assert kept, f"{path}: what is shared is not the same before and after"
        self.there[id(one)], self.back[id(two)] = id(two), id(one)
        return seen


def assert_same_bits(one: torch.Tensor, two: torch.Tensor) -> None:
    """Equal type, shape and content, the signs of zeros and the payloads of NaNs included."""
    assert (one.dtype, one.shape) == (two.dtype, two.shape)
    assert _bytes_of(one) == _bytes_of(two)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    whole = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return bytes(whole.reshape(-1).view(torch.uint8).numpy()) if whole.numel() else b""

"""Classes made up on the spot, with fields of any combination of types: what their objects hold comes back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Union

import pytest
import torch
from generated_graphs import (
    Colour,
    Leaf,
    Node,
    OtherLeaf,
    Size,
    anything,
    assert_same_graph,
    devices,
    dtypes,
    floats,
    functions,
    integers,
    moments,
    scale,
    texts,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sonosco_like.errors import ConfigError
from sonosco_like.serialization import dumps, loads, serializable

Typed = tuple[Any, st.SearchStrategy[Any]]  # a type and its values

NUMBERS = itertools.count()
CHOICES = ["a", "1", 1, True, None]
SIMPLE: list[Typed] = [
    (bool, st.booleans()), (int, integers()), (float, floats()), (str, texts()), (type(None), st.none()),
    (Path, texts().map(Path)), (Colour, st.sampled_from(Colour)), (Size, st.sampled_from(Size)), (datetime, moments()),
    (timedelta, st.timedeltas()), (Leaf, st.builds(Leaf, weight=floats())), (OtherLeaf, st.builds(OtherLeaf)),
    (torch.dtype, dtypes()), (torch.device, devices()), (type, st.sampled_from([Leaf, Node])), (Callable, functions()),
    (Any, anything()), (Literal["a", "1", 1, True, None], st.sampled_from(CHOICES)),
]  # fmt: skip
KEYS: list[Typed] = [
    (str, texts()), (int, integers()), (float, st.floats(allow_nan=False)), (Colour, st.sampled_from(Colour)),
    (Path, texts().map(Path)), (int | str | None, integers() | texts() | st.none()),
]  # fmt: skip


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> Typed:
    """A type of a field, nested up to `depth`, with its values."""
    kind = draw(
        st.sampled_from(["simple", "simple", "list", "pair", "tuple", "dict", "set", "union", "union", "union"])
    )
    if depth == 0 or kind == "simple":
        return draw(st.sampled_from(SIMPLE))
    if kind == "union":
        options = draw(st.lists(types(depth - 1), min_size=2, max_size=3))
        return Union[tuple(hint for hint, _ in options)], st.one_of([values for _, values in options])  # noqa: UP007
    key, keys = draw(st.sampled_from(KEYS))
    if kind == "set":
        several = st.sets(keys, max_size=3)
        return draw(st.sampled_from([(set[key], several), (frozenset[key], several.map(frozenset))]))
    item, values = draw(types(depth - 1))
    if kind == "dict":
        return dict[key, item], st.dictionaries(keys, values, max_size=3)
    if kind == "pair":
        other, others = draw(types(depth - 1))
        return tuple[item, other], st.tuples(values, others)
    several_items = st.lists(values, max_size=3)
    return (list[item], several_items) if kind == "list" else (tuple[item, ...], several_items.map(tuple))


@st.composite
def objects(draw: st.DrawFn) -> Any:
    """An object of a class nobody has seen before."""
    described = [draw(types()) for _ in range(draw(st.integers(1, 3)))]
    hints = {f"field_{index}": hint for index, (hint, _) in enumerate(described)}
    made = type(f"Generated{next(NUMBERS)}", (), {"__annotations__": hints, "__module__": __name__})
    return serializable(made)(**{name: draw(values) for name, (_, values) in zip(hints, described, strict=True)})


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(objects())
def test_fields_of_any_type_come_back_or_are_refused_when_two_types_look_the_same(thing):
    try:
        text = dumps(thing)
    except ConfigError as error:
        message = str(error)
        if "could not be told from" in message:
            return
        raise
    assert_same_graph(thing, loads(text))
    assert dumps(loads(text)) == text


ALIKE = [
    (int | float, 1.0), (float | int, 1), (bool | str, "true"), (str | None, "null"), (Path | str, "a"),
    (str | Path, Path("a")), (int | Literal["1"], "1"), (Leaf | OtherLeaf, OtherLeaf()),
    (dict[str, Any] | Leaf, Leaf(weight=1.0)), (Leaf | dict[str, Any], {"weight": 1.0}),
    (dict[str, Any] | Leaf, {"class": "generated_graphs.Leaf"}), (set[int] | frozenset[int], frozenset({1})),
    (tuple[int, ...] | list[int], (1,)), (list[int] | tuple[int, ...], (1,)), (list[int] | list[str], ["1"]),
    (Callable | str, scale), (str | Callable, scale), (Callable | str, "generated_graphs.scale"),
    (str | type, Leaf), (type | str, "generated_graphs.Leaf"),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "value"), ALIKE, ids=lambda part: getattr(part, "__name__", repr(part)))
def test_types_of_one_form_are_told_apart(hint, value):
    made = serializable(type(f"Alike{next(NUMBERS)}", (), {"__annotations__": {"field": hint}, "__module__": __name__}))
    assert_same_graph(value, loads(dumps(made(field=value))).field)

"""Classes made up on the spot, with fields of any combination of types: what their objects hold comes back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Union

import pytest
import torch
from generated_graphs import (
    Colour,
    Leaf,
    OtherLeaf,
    Size,
    anything,
    assert_same_graph,
    devices,
    dtypes,
    floats,
    functions,
    integers,
    scale,
    texts,
)
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from sonosco_like.errors import ConfigError, DefinitionError
from sonosco_like.serialization import dumps, loads, serializable

Typed = tuple[Any, st.SearchStrategy[Any]]  # a type and its values

NUMBERS = itertools.count()
CHOICES = ["a", "1", 1, True, None]
SIMPLE: list[Typed] = [
    (bool, st.booleans()), (int, integers()), (float, floats()), (str, texts()), (type(None), st.none()),
    (Path, texts().map(Path)), (Colour, st.sampled_from(Colour)), (Size, st.sampled_from(Size)),
    (Leaf, st.builds(Leaf, weight=floats())), (OtherLeaf, st.builds(OtherLeaf)),
    (torch.dtype, dtypes()), (torch.device, devices()), (Callable, functions()),
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
        return set[key], st.sets(keys, max_size=3)
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
    try:
        cls = serializable(made)
    except DefinitionError as error:
        if "not tell them apart" in str(error):
            reject()
        raise
    return cls(**{name: draw(values) for name, (_, values) in zip(hints, described, strict=True)})


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
    (dict[str, Any] | Leaf, {"class": "generated_graphs.Leaf"}),
    (tuple[int, ...] | list[int], (1,)), (list[int] | tuple[int, ...], (1,)),
    (Callable | str, scale), (str | Callable, scale), (Callable | str, "generated_graphs.scale"),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "value"), ALIKE, ids=lambda part: getattr(part, "__name__", repr(part)))
def test_types_of_one_form_are_told_apart(hint, value):
    made = serializable(type(f"Alike{next(NUMBERS)}", (), {"__annotations__": {"field": hint}, "__module__": __name__}))
    assert_same_graph(value, loads(dumps(made(field=value))).field)


def test_a_value_that_would_be_read_as_another_type_is_refused_when_it_is_written():
    hint = Leaf | torch.dtype | Callable[..., Any]
    made = serializable(type(f"Alike{next(NUMBERS)}", (), {"__annotations__": {"field": hint}, "__module__": __name__}))
    with pytest.raises(ConfigError, match="could not be told from"):
        dumps(made(field=scale))


@pytest.mark.parametrize(
    "hint",
    [
        list[int] | list[str], list[int] | Sequence[str], tuple[int] | tuple[int, int], dict[str, int] | dict[int, str],
        set[int] | set[str], dict[str, list[int] | list[str] | None], Callable[[int], int] | Callable[[str], str],
    ],
    ids=str,
)  # fmt: skip
def test_a_union_of_two_types_of_one_form_is_refused_where_the_class_is_defined(hint):
    with pytest.raises(DefinitionError, match=r"field cannot have the type .* not tell them apart"):
        serializable(type("Ambiguous", (), {"__annotations__": {"field": hint}, "__module__": __name__}))


@pytest.mark.parametrize("hint", [datetime, timedelta, frozenset[int], type[Leaf], list[type]], ids=str)
def test_a_type_that_no_file_holds_is_refused_where_the_class_is_defined(hint):
    with pytest.raises(DefinitionError, match=r"docs/format\.md lists the types"):
        serializable(type("Impossible", (), {"__annotations__": {"field": hint}, "__module__": __name__}))

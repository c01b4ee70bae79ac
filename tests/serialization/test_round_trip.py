"""What is written comes back: the same values to the bit, the same sharing, and the same text again."""

from __future__ import annotations

import math
import os

import pytest
import yaml
from generated_graphs import (
    ODD_TEXTS,
    Holder,
    Leaf,
    Node,
    anything,
    assert_same_graph,
    everythings,
    floats,
    graphs,
    texts,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sonosco_like.errors import ConfigError
from sonosco_like.serialization import dumps, load, loads, save

SLOW_TO_DRAW = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def _again(value):
    return loads(dumps(value))


@settings(SLOW_TO_DRAW, max_examples=30)
@given(everythings())
def test_every_field_type_comes_back(thing):
    assert_same_graph(thing, _again(thing))


@settings(SLOW_TO_DRAW, max_examples=15)
@given(graphs())
def test_graphs_come_back_with_their_sharing_and_state(graph):
    assert_same_graph(graph, _again(graph))


@settings(SLOW_TO_DRAW, max_examples=15)
@given(everythings() | graphs())
def test_dumping_what_was_loaded_gives_the_same_text(value):
    text = dumps(value)
    assert dumps(loads(text)) == text


@settings(SLOW_TO_DRAW, max_examples=12)
@given(graph=graphs(cycles_in_state=True))
def test_a_folder_gives_back_graph_state_and_references_from_state_to_the_graph(tmp_path_factory, graph):
    folder = tmp_path_factory.mktemp("saved") / "graph"
    save(graph, folder)
    assert_same_graph(graph, load(folder))


@settings(SLOW_TO_DRAW, max_examples=60)
@given(anything())
def test_anything_comes_back_where_no_type_is_declared(value):
    node = Node(anything=value)
    node.memory = [value]
    restored = _again(node)
    assert_same_graph(value, restored.anything)
    assert_same_graph([value], restored.memory)


@settings(SLOW_TO_DRAW, max_examples=60)
@given(st.lists(anything(), max_size=3) | st.dictionaries(texts(), anything(), max_size=3) | anything())
def test_values_that_are_no_object_come_back_from_the_top_level(value):
    assert_same_graph(value, _again(value))


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: ascii(text)[:30])
def test_odd_texts_come_back_as_value_as_key_and_in_every_container(text):
    node = Node(
        name=text, by_name={text: Node(name=text)}, either=text,
        anything=[text, (text,), {text: text}, {text}, {"a": [text, text]}, [[text]]],
    )  # fmt: skip
    assert_same_graph(node, _again(node))


@pytest.mark.parametrize(
    "text", ["x" * 10**6, "word " * 10**5, "a\n" * 10**5, " b\n\n" * 10**4, "é\u2028" * 10**4, "\x85" * 10**4]
)
def test_very_long_texts_come_back(text):
    assert _again(Leaf(label=text)).label == text


@settings(max_examples=100)
@given(texts(), texts(), st.integers(0, 3))
def test_texts_come_back_at_every_depth_of_indentation(one, two, depth):
    value: object = {one: two}
    for _ in range(depth):
        value = {"k": [value, {one: [two]}]}
    assert_same_graph(value, _again(value))


@settings(max_examples=100)
@given(floats())
def test_floats_come_back_to_the_bit_and_stay_floats_for_other_readers(value):
    text = dumps(Leaf(weight=value))
    assert_same_graph(value, loads(text).weight)
    elsewhere = yaml.safe_load(text)["weight"]
    assert type(elsewhere) is float
    assert elsewhere == value or (math.isnan(elsewhere) and math.isnan(value))


@given(texts())
def test_texts_stay_texts_for_other_readers(value):
    assert yaml.safe_load(dumps(Leaf(label=value)))["label"] == value


def test_numbers_of_thousands_of_digits_come_back():
    assert loads(dumps([10**4000, -(10**4000)])) == [10**4000, -(10**4000)]


def test_a_number_with_more_digits_than_python_converts_is_refused_when_it_is_written():
    with pytest.raises(ConfigError, match=r"\[1\]"):
        dumps([1, 10**5000])


def test_a_whole_number_that_no_float_equals_is_not_changed_in_silence():
    assert _again(Leaf(weight=2**53)).weight == 2**53
    for number in (2**53 + 1, -(2**60) - 1, 10**400):
        with pytest.raises(ConfigError, match="weight"):
            dumps(Leaf(weight=number))


def test_one_set_in_two_places_is_one_set_again():
    shared = {"a", "b"}
    restored = _again(Node(anything=[shared, shared, (shared,)]))
    assert restored.anything[0] is restored.anything[1] is restored.anything[2][0]


def test_several_instances_of_one_class_keep_their_own_state(tmp_path):
    leaves = [Leaf(label="same") for _ in range(20)]
    for index, leaf in enumerate(leaves):
        leaf.visits = index
    node = Node(anything=leaves, by_name={"x": Node(either=leaves[7])})
    save(node, tmp_path / "many")
    for restored in (_again(node), load(tmp_path / "many")):
        assert [leaf.visits for leaf in restored.anything] == list(range(20))
        assert restored.by_name["x"].either is restored.anything[7]


def test_an_object_of_a_union_with_a_dictionary_is_an_object_again_and_a_dictionary_stays_one():
    looks_like_an_object = {"class": "generated_graphs.Leaf", "weight": 1.0}
    restored = _again(
        [Node(either=Leaf(weight=1.0)), Node(either=looks_like_an_object), Node(either={"function": "x"})]
    )
    assert isinstance(restored[0].either, Leaf)
    assert restored[1].either == looks_like_an_object
    assert restored[2].either == {"function": "x"}


def test_what_is_nested_too_deep_to_be_read_is_refused_when_it_is_written():
    for depth in (20, 60, 90, 99, 100, 101, 102, 120, 500, 100_000):
        value: list[object] = []
        for _ in range(depth):
            value = [value]
        try:
            text = dumps(Node(anything=value))
        except ConfigError:
            assert depth > 60
        else:
            loads(text)
        while value:  # taken apart from the outside, so that Python need not recurse to free it
            value = value.pop()  # type: ignore[assignment]


def test_state_that_points_around_in_a_circle_comes_back_from_a_folder(tmp_path):
    one, two = Node(name="one"), Node(name="two")
    root = Node(children=[one, two])
    one.friend, two.friend, root.friend = two, one, root
    one.memory = [root, [one], {"two": two}]
    save(root, tmp_path / "circle")
    assert_same_graph(root, load(tmp_path / "circle"))


def test_a_circle_of_constructor_fields_is_refused_by_name():
    node = Node(name="snake")
    node.children.append(node)
    with pytest.raises(ConfigError, match="itself"):
        dumps(node)
    around: list[object] = []
    around.append(around)
    with pytest.raises(ConfigError, match="itself"):
        dumps(Node(anything=around))


def test_the_text_does_not_depend_on_the_hash_seed(run_python):
    code = """
from typing import Any
from sonosco_like.serialization import dumps, serializable, state

@serializable
class Words:
    words: set[str]
    numbers: set[int]
    anything: Any
    seen: set[str] = state(set())

names = [chr(97 + index) * (index % 3 + 1) for index in range(26)] + ["1", "no", "é"]
words = Words(words=set(names), numbers=set(range(-9, 2**40, 2**36)), anything=[set(names), {1, "1", None, 2.5}])
words.seen = set(names)
print(dumps(words))
"""
    runs = [run_python(code, env={**os.environ, "PYTHONHASHSEED": seed}) for seed in ("0", "1", "4242")]
    assert all(run.returncode == 0 for run in runs), runs[0].stderr
    assert len({run.stdout for run in runs}) == 1


def test_an_empty_holder_and_default_objects_come_back(tmp_path):
    for value in (Holder(), Node(), Leaf()):
        save(value, tmp_path / "x")
        assert_same_graph(value, load(tmp_path / "x"))
        save(value, tmp_path / "x.yaml")
        assert_same_graph(value, load(tmp_path / "x.yaml"))


def test_readable_unicode_is_written_as_itself():
    assert "Grüße, 日本語, Ελληνικά" in dumps(Leaf(label="Grüße, 日本語, Ελληνικά"))

"""`base:`: a file is merged over another one, and messages know which file a value came from."""

from __future__ import annotations

import copy
from dataclasses import field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.errors import ConfigError
from sonosco_like.serialization import Document, load, save, serializable
from sonosco_like.serialization.base_file import merge
from sonosco_like.serialization.yaml_text import parse


@serializable
class Part:
    size: int = 4
    limit: int | None = 7
    names: list[str] = field(default_factory=list)


@serializable
class OtherPart:
    width: int = 1


@serializable
class Whole:
    name: str
    part: Any = None
    parts: dict[str, Part] = field(default_factory=dict)
    twin: Any = None


@serializable
class Rebased:
    base: str = "none"


KEYS = st.sampled_from("abcd")
PLAIN = st.recursive(
    st.integers(0, 9) | st.text("xyz", max_size=2) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
MAPPINGS = st.dictionaries(KEYS, PLAIN, max_size=4)


def merged(base: Any, over: Any) -> Any:
    root = parse(yaml.safe_dump(base), "base")
    merge(root, parse(yaml.safe_dump(over), "over"), "over")
    return Document(root, "both").get()


def expected(base: Any, over: Any) -> Any:
    """The rule in a few words: mappings are merged, everything else is replaced."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    both = {**base, **over}
    return {key: expected(base[key], over[key]) if key in base and key in over else both[key] for key in both}


@given(base=MAPPINGS, over=MAPPINGS)
def test_mappings_are_merged_and_everything_else_is_replaced(base, over):
    assert merged(base, over) == expected(base, over)


@given(base=MAPPINGS)
def test_what_says_nothing_or_the_same_changes_nothing(base):
    assert merged(base, {}) == base
    assert merged(base, copy.deepcopy(base)) == base


@given(base=MAPPINGS, over=MAPPINGS, last=MAPPINGS)
def test_a_base_of_a_base_is_merged_first(base, over, last):
    assert merged(merged(base, over), last) == expected(expected(base, over), last)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.absolute()


HERE = __name__.partition(".")[0]
BASE = f"""
class: {HERE}.Whole
name: base
part: &part {{class: {HERE}.Part, size: 5, limit: 9, names: [a, b]}}
parts:
  first: {{size: 1}}
  second: {{size: 2}}
twin: *part
"""


def test_a_file_is_read_over_its_base_and_a_base_over_its_own(folder):
    write("lib/deep/root.yaml", BASE)
    write("lib/common.yaml", "base: deep/root.yaml\nname: middle\nparts: {first: {limit: 3}}\n")
    whole = load(write("top.yaml", "base: lib/common.yaml\nparts: {first: {names: [z]}, third: {}}\n"))
    assert whole.name == "middle"
    assert list(whole.parts) == ["first", "second", "third"]
    assert (whole.parts["first"].size, whole.parts["first"].limit, whole.parts["first"].names) == (1, 3, ["z"])


def test_lists_are_replaced(folder):
    write("base.yaml", BASE)
    assert load(write("top.yaml", "base: base.yaml\npart: {names: [c]}\n")).part.names == ["c"]


def test_null_is_null_where_a_field_takes_it_else_the_default_and_no_entry_in_a_dictionary(folder):
    write("base.yaml", BASE)
    text = "base: base.yaml\npart: {size: null, limit: null, names: null}\nparts: {first: null}\ntwin: null\n"
    whole = load(write("top.yaml", text))
    assert (whole.part.size, whole.part.limit, whole.part.names) == (4, None, [])
    assert list(whole.parts) == ["second"]
    assert whole.twin is None


def test_null_for_a_field_without_a_default_is_a_missing_field(folder):
    write("base.yaml", BASE)
    with pytest.raises(ConfigError, match=r"name: .*needs this field"):
        load(write("top.yaml", "base: base.yaml\nname: null\n"))


def test_null_over_nothing_is_an_ordinary_null(folder):
    write("base.yaml", f"class: {HERE}.Part\n")
    with pytest.raises(ConfigError, match=r"top\.yaml:2: size: expected a whole number, got nothing"):
        load(write("top.yaml", "base: base.yaml\nsize: null\n"))


def test_a_mapping_of_another_class_is_replaced_and_one_of_the_same_class_is_merged(folder):
    write("base.yaml", BASE)
    other = load(write("other.yaml", f"base: base.yaml\npart: {{class: {HERE}.OtherPart}}\n"))
    assert type(other.part) is OtherPart
    same = load(write("same.yaml", f"base: base.yaml\npart: {{class: {HERE}.Part, limit: 1}}\n"))
    assert (same.part.size, same.part.limit) == (5, 1)


def test_a_change_of_what_the_base_has_by_an_alias_reaches_all_its_places(folder):
    write("base.yaml", BASE)
    for change in ("{limit: 1}", f"{{class: {HERE}.OtherPart, width: 8}}"):
        whole = load(write("top.yaml", f"base: base.yaml\npart: {change}\n"))
        assert whole.twin is whole.part


def test_two_changes_of_one_object_are_refused(folder):
    write("base.yaml", BASE)
    with pytest.raises(ConfigError, match=r"top\.yaml:2: this and what is at line 3 are one object of the base"):
        load(write("top.yaml", "base: base.yaml\npart: {size: 1}\ntwin: {size: 2}\n"))


def test_a_key_twice_is_refused_in_either_file(folder):
    write("base.yaml", BASE)
    with pytest.raises(ConfigError, match=r"top\.yaml:3: has the key 'name' twice"):
        load(write("top.yaml", "base: base.yaml\nname: a\nname: b\n"))


def test_messages_name_the_file_and_line_where_a_value_came_from(folder):
    write("lib/base.yaml", BASE.replace("size: 2", "size: two"))
    path = write("top.yaml", "base: lib/base.yaml\nparts:\n  first: {sice: 3}\n")
    with pytest.raises(ConfigError) as error:
        Document.read(path, ["parts.second.limit=much"], source="top.yaml").build()
    places = {(problem.source, problem.line) for problem in error.value.problems}
    assert places == {("lib/base.yaml", 7), ("top.yaml", 3), ("--set parts.second.limit", 1)}


def test_overrides_are_put_over_the_merged_file(folder):
    write("base.yaml", BASE)
    document = Document.read(write("top.yaml", "base: base.yaml\nname: x\n"), ["parts.second.size=6", "part=null"])
    assert document.get("parts.second.size") == 6
    assert document.get("base") is None
    assert document.build(Whole).part is None


def test_an_object_with_a_field_of_that_name_is_not_merged(folder):
    save(Rebased(base="other"), folder / "object.yaml")
    assert load(folder / "object.yaml").base == "other"

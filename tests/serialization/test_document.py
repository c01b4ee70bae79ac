"""`Document`: a config text that is parsed once and then asked, changed and built by path."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

import pytest

from sonosco_like import dumps, serializable
from sonosco_like.errors import ConfigError, StorageError
from sonosco_like.serialization import Document

PACKAGE = __name__.partition(".")[0]


@serializable
class Wheel:
    size: float = 1.0
    spokes: list[int] = field(default_factory=list)


@serializable
class Cart:
    front: Wheel
    back: Wheel | None = None
    names: dict[str, str] = field(default_factory=dict)
    place: Path | None = None


TEXT = f"""\
class: {PACKAGE}.Cart
front: &wheel
  size: 2
  spokes: [3, 4]
back: *wheel
names: {{}}
place: null
"""


def test_values_are_plain_data_by_path():
    document = Document.parse(TEXT)
    assert document.get("front.size") == 2
    assert document.get("front.spokes[1]") == 4
    assert document.get(("front", "spokes", 0)) == 3
    assert document.get("front") == {"size": 2, "spokes": [3, 4]}
    assert document.get("place") is None
    assert document.get("front.hub.bolts") is None
    assert document.get()["names"] == {}


def test_an_alias_is_the_same_object_until_something_is_set():
    document = Document.parse(TEXT)
    assert document.get("front") is document.get("back")
    document.set("front", {"size": 5})
    assert document.get("front") == {"size": 5}
    assert document.get("back.size") == 2


def test_what_is_set_is_built():
    document = Document.parse(TEXT)
    document.set("front.size", 3.5)
    document.set("names.left", "l")
    document.set("place", Path("here/there"))
    document.set("back", {"class": f"{PACKAGE}.Wheel", "spokes": [1]})
    cart = document.build(Cart)
    assert (cart.front.size, cart.names, cart.place, cart.back.spokes) == (3.5, {"left": "l"}, Path("here/there"), [1])


def test_what_cannot_be_set_is_refused():
    with pytest.raises(ConfigError, match="needs a mapping"):
        Document.parse(TEXT).set("front.size.unit", "m")
    with pytest.raises(ConfigError, match="the list has 2 values"):
        Document.parse(TEXT).set("front.spokes[5]", 1)


def test_leaves_are_the_texts_by_path_and_aliases_once():
    assert Document.parse(TEXT).leaves() == {
        "class": f"{PACKAGE}.Cart", "front.size": "2", "front.spokes[0]": "3", "front.spokes[1]": "4", "names": "{}",
        "place": "null",
    }  # fmt: skip


def test_overrides_of_the_command_line_are_applied_when_it_is_read(tmp_path):
    (tmp_path / "c.yaml").write_text(TEXT)
    document = Document.read(tmp_path / "c.yaml", ["front.size=7", "place=a b"])
    assert document.get("front.size") == 7
    assert document.build(Cart).place == Path("a b")


def test_overrides_change_a_document_that_was_read_in_their_order():
    document = Document.parse(TEXT)
    document.override(["front.size=7", "front.size=8", "front.spokes[2]=9", "names.left=l"])
    document.override([])
    cart = document.build(Cart)
    assert (cart.front.size, cart.front.spokes, cart.names) == (8.0, [3, 4, 9], {"left": "l"})
    with pytest.raises(ConfigError, match=r"front\.spokes"):
        document.override(["front.spokes[7]=1"])


def test_problems_name_file_and_line(tmp_path):
    (tmp_path / "c.yaml").write_text(TEXT.replace("size: 2", "size: big"))
    with pytest.raises(ConfigError, match=r"c\.yaml:3: front\.size: expected a number, got 'big'"):
        Document.read(tmp_path / "c.yaml").build(Cart)


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "c.yaml").write_text(TEXT)
    (tmp_path / "link.yaml").symlink_to(tmp_path / "c.yaml")
    with pytest.raises(StorageError, match="symbolic link"):
        Document.read(tmp_path / "link.yaml")


def test_the_document_of_an_object_says_what_it_is_written_as():
    wheel = Wheel(size=0.001)
    cart = Cart(front=wheel, back=wheel)
    document = Document.of(cart)
    assert document.leaves() == Document.parse(dumps(cart)).leaves()
    assert document.text() == dumps(cart, state=False)
    assert document.text("front.size") == "0.001\n"


def test_descriptions_are_those_of_messages():
    document = Document.parse(TEXT)
    assert document.describe("front.size") == "the number 2"
    assert document.describe("front") == "a mapping"
    assert document.describe("no.such") == "nothing"


def test_a_value_is_normalised_to_how_its_type_is_written():
    document = Document.parse(TEXT)
    document.normalise("front", Wheel)
    assert document.leaves()["front.size"] == "2.0"
    document.normalise("class", int)
    assert document.get("class") == f"{PACKAGE}.Cart"


def test_a_text_that_holds_itself_is_refused_as_plain_data():
    with pytest.raises(ConfigError, match="refers to itself"):
        Document.parse("a: &a [*a]").get("a")


def test_aliases_are_not_expanded():
    lines = ["a0: &a0 [1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))]
    document = Document.parse("\n".join(lines))
    assert len(document.leaves()) == 1
    assert len(document.get("a29")) == 9


def test_anchors_have_the_names_of_the_fields_where_they_are_first():
    wheel, other = Wheel(spokes=[1]), Wheel()
    carts = [Cart(front=wheel, back=wheel), Cart(front=wheel, back=other), Cart(front=other)]
    text = dumps(carts, state=False)
    assert "front: &front\n" in text
    assert "back: *front\n" in text
    assert "back: &back\n" in text
    assert "id001" not in text
    again = Document.parse(text).build(list[Cart])
    assert again[0].front is again[0].back is again[1].front
    assert again[1].back is again[2].front
    assert dumps(again, state=False) == text


def test_anchors_of_odd_or_equal_names_are_told_apart():
    first, second, third = Wheel(), Wheel(), Wheel()
    value = {"a b": first, "é": second, "x": [first, second, third, third], "y": {"x": third}}
    text = dumps(value, state=False)
    again = Document.parse(text).build()
    assert again["a b"] is again["x"][0]
    assert again["é"] is again["x"][1]
    assert again["x"][2] is again["x"][3] is again["y"]["x"]

"""`--set path=value`: what stands after the first `=` is the value, and text is text as it was given."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like import dumps, loads, serializable
from sonosco_like.cli.options import read_with_own_data
from sonosco_like.data import Alphabet
from sonosco_like.errors import ConfigError
from sonosco_like.serialization import quote_override
from sonosco_like.training import read_experiment


@serializable
class Settings:
    text: str = "abc"
    maybe: str | None = None
    steps: int | str = 1
    number: float = 0.0
    where: Path = Path("here")
    kind: Literal["gru", "lstm"] = "gru"
    names: list[str] = field(default_factory=list)
    names_or_text: list[str] | str = ""
    anything: Any = None


def read(override: str) -> Settings:
    return loads("{}", Settings, overrides=[override])


def is_in_quotes(text: str) -> bool:
    """Whether YAML reads a text as one scalar whose quotes, tag or anchor say what it is."""
    try:
        node = yaml.compose(text)
    except (yaml.YAMLError, ValueError):
        return False
    explicit = text.strip()[:1] in ("'", '"', "!", "&", "|", ">")
    return isinstance(node, yaml.ScalarNode) and explicit


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" #:'\"[]{}=,&*!|>-?%@`\t\n\\"), max_size=30))
def test_a_text_is_the_text_that_was_given_unless_it_is_in_quotes(text):
    if not is_in_quotes(text):
        assert read(f"text={text}").text == text
        assert loads(dumps(read(f"text={text}")), Settings).text == text, "and stays so when it is written down"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_text_in_quotes_is_what_stands_between_them(text):
    assert read(f"text={quote_override(text)}").text == text
    assert read(f"maybe= {quote_override(text)} ").maybe == text


@pytest.mark.parametrize(
    "text",
    [
        " abc", "abc ", "  ", "", "a #b", "#", "a: b", "a:", "- a", "[a, b", "{", "'", "it's", '"', "a=b", "==", "5",
        "1e-3", "true", "null", "~", "*a", "&", "@", "%", "`", "? a", "[a]", "{a: b}", "a\tb", "a\n b", "\x00", "ü ñ",
    ],
)  # fmt: skip
def test_blanks_signs_and_numbers_belong_to_a_text(text):
    assert read(f"text={text}").text == text


@pytest.mark.parametrize(
    ("override", "name", "value"),
    [
        ("maybe=", "maybe", None),
        ("maybe=null", "maybe", None),
        ("maybe= a", "maybe", " a"),
        ("maybe=5", "maybe", "5"),
        ("maybe=a: b", "maybe", "a: b"),
        ("steps= 5", "steps", 5),
        ("steps=500ba", "steps", "500ba"),
        ("number= 1e-3 ", "number", 0.001),
        ("where= my data #2.jsonl", "where", Path("my data #2.jsonl")),
        ("where=' x'", "where", Path(" x")),
        ("kind= lstm", "kind", "lstm"),
        ("names=[a, ' b']", "names", ["a", " b"]),
        ("names_or_text=[a, b]", "names_or_text", ["a", "b"]),
        ("names_or_text={a: b}", "names_or_text", "{a: b}"),
        ("anything= a #b", "anything", " a #b"),
        ("anything={a: 1}", "anything", {"a": 1}),
        ("text= 'a' ", "text", "a"),
        ("text=!!str 5", "text", "5"),
        (" text =a", "text", "a"),
    ],
)
def test_the_type_of_the_field_says_what_a_value_means(override, name, value):
    found = getattr(read(override), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("number=[", "is not valid YAML"),
        ("names=[a, b", "is not valid YAML"),
        ("anything={a: [", "is not valid YAML"),
        ("where={a: b}", "expected a path, got a mapping"),
        ("number=", r"expected a number, got nothing \(null\)"),
        ("text=\ud800", "is not UTF-8 text"),
    ],
)
def test_what_is_neither_the_value_of_a_field_nor_text_is_refused(override, said):
    with pytest.raises(ConfigError, match=said):
        read(override)


def test_an_alphabet_keeps_the_blank_that_separates_words():
    config = "class: Alphabet\ncharacters: xy"
    assert loads(config, Alphabet, overrides=["characters= abc"]).characters == " abc"


def test_a_config_takes_it_as_it_is():
    config = Path(__file__).parents[2] / "configs" / "smoke.yaml"
    place = "trainer.train_data_loader.dataset.tokenizer"
    experiment = read_experiment(config, [f"{place}.class=Alphabet", f"{place}.characters= abc'"])
    assert experiment.trainer.train_data_loader.dataset.tokenizer.symbols[-5:] == tuple(" abc'")


def test_a_manifest_with_signs_in_its_name_is_handed_on(tmp_path):
    manifest = tmp_path / "my 'own' \\ data #2: a.jsonl"
    manifest.touch()
    config = Path(__file__).parents[2] / "configs" / "smoke.yaml"
    given = {"train_manifest": manifest, "val_manifest": manifest, "test_manifest": None}
    experiment = read_with_own_data(config, [], given)
    assert experiment.trainer.train_data_loader.dataset.manifest == manifest

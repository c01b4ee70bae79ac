"""The JSON Schema accepts what reading accepts and refuses what it refuses."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

import jsonschema
import pytest
import yaml

from sonosco_like import dumps, serializable
from sonosco_like.serialization import json_schema


@serializable
class Layer:
    """A layer of a net."""

    size: int
    kind: Literal["gru", "lstm"] = "gru"


@serializable
class Stack:
    layers: list[Layer] = field(default_factory=list)
    rate: float | None = None
    pair: tuple[int, str] = (1, "a")


PACKAGE = __name__.partition(".")[0]


@pytest.fixture(scope="module")
def validator():
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_what_is_written_is_valid(validator):
    stack = Stack(layers=[Layer(size=3), Layer(size=4, kind="lstm")], rate=0.1)
    validator.validate(yaml.safe_load(dumps(stack)))


@pytest.mark.parametrize(
    "config",
    [
        {"class": "P.Stack", "lairs": []},
        {"class": "P.Stack", "layers": [{"class": "P.Layer", "size": "three"}]},
        {"class": "P.Stack", "layers": [{"class": "P.Layer"}]},
        {"class": "P.Stack", "layers": [{"class": "P.Layer", "size": 1, "kind": "rnn"}]},
        {"class": "P.Stack", "pair": [1]},
        {"class": "P.Nothing"},
        {"layers": []},
    ],
)
def test_what_reading_refuses_is_invalid(validator, config):
    config["class"] = config.get("class", "").replace("P.", f"{PACKAGE}.")
    config["layers"] = [
        {**layer, "class": layer["class"].replace("P.", f"{PACKAGE}.")} for layer in config.get("layers", [])
    ]
    assert not validator.is_valid(config)


def test_the_first_sentence_of_a_class_and_its_defaults_are_in_the_schema():
    layer = json_schema()["$defs"][f"{PACKAGE}.Layer"]
    assert layer["description"] == "A layer of a net."
    assert layer["properties"]["kind"]["default"] == "gru"
    assert layer["required"] == ["size"]


def test_only_the_class_of_the_top_may_be_left_out():
    with_top = jsonschema.Draft202012Validator(json_schema(Stack))
    assert with_top.is_valid({"rate": 0.1})
    assert not with_top.is_valid({"rates": 0.1})
    assert not with_top.is_valid({"size": 3})

"""Reading: all problems at once, each with file, line, path, what was expected, what came, and a remedy."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from sonosco_like import dumps, loads, serializable
from sonosco_like.errors import ConfigError


class Mode(enum.Enum):
    MIN = "min"
    MAX = "max"


@serializable
class Stopper:
    monitor: str = "val_loss"
    patience: int = 3
    threshold: float = 0.0
    mode: Mode = Mode.MIN
    enabled: bool = True


@serializable
class Net:
    size: int
    kind: Literal["gru", "lstm"] = "gru"


@serializable
def smoothed(value: float = 0.0, alpha: float = 0.5) -> float:
    return alpha * value


@serializable
class Run:
    net: Net
    stoppers: list[Stopper] = field(default_factory=list)
    where: Path | None = None
    metrics: list[Callable[..., float]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)


PACKAGE = dumps(Net(size=1)).split()[1].partition(".")[0]


def read(text: str, **options):
    return loads(text.replace("P.", f"{PACKAGE}."), source="las.yaml", **options)


def problems(text: str, **options) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, **options)
    return str(caught.value).splitlines()


def test_a_whole_config_is_built():
    run = read(
        """
        class: P.Run
        net: {size: 12, kind: lstm}
        stoppers:
        - {class: P.Stopper, monitor: val_wer, threshold: 1e-3, mode: max}
        - {patience: 0x10}
        where: runs/first
        metrics: [P.smoothed, {function: P.smoothed, alpha: 1}]
        extra: {a: 1, b: [1.5, null, yes]}
        """
    )
    assert (run.net.size, run.net.kind) == (12, "lstm")
    assert run.stoppers[0].threshold == 0.001
    assert run.stoppers[0].mode is Mode.MAX
    assert run.stoppers[1].patience == 16
    assert run.where == Path("runs/first")
    assert run.metrics[0] is smoothed
    assert isinstance(run.metrics[1], partial)
    assert run.metrics[1](value=2.0) == 2.0
    assert run.extra == {"a": 1, "b": [1.5, None, "yes"]}


def test_every_problem_is_reported_at_once_with_line_and_path():
    found = problems(
        """class: P.Run
net: {sise: 12}
stoppers:
- {monitor: 5, patience: ten}
- {mode: mni}
- {class: P.Stoper}
- {class: P.Net, size: 1}
where: [a]
"""
    )
    assert found == [
        "las.yaml:2: net.sise: Net has no field 'sise'; did you mean 'size'?".replace("Net", f"{PACKAGE}.Net"),
        f"las.yaml:2: net.size: {PACKAGE}.Net needs this field: a whole number",
        "las.yaml:4: stoppers[0].monitor: expected text, got the number 5; put it in quotes if it is meant as text",
        "las.yaml:4: stoppers[0].patience: expected a whole number, got 'ten'",
        "las.yaml:5: stoppers[1].mode: expected a Mode (min, max), got 'mni'; did you mean 'min'?",
        f"las.yaml:6: stoppers[2].class: there is no class '{PACKAGE}.Stoper'; did you mean '{PACKAGE}.Stopper'?",
        f"las.yaml:7: stoppers[3].class: expected a Stopper, got {PACKAGE}.Net; known are {PACKAGE}.Stopper",
        "las.yaml:8: where: expected a path or nothing (null), got a list",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("patience: 1.5", "expected a whole number, got the number 1.5"),
        ("patience: true", "expected a whole number, got true"),
        ("patience: '3'", "expected a whole number, got '3'"),
        ("patience:", "expected a whole number, got nothing (null)"),
        ("threshold: high", "expected a number, got 'high'"),
        ("enabled: yes", "expected true or false, got 'yes'"),
        ("enabled: 1", "expected true or false, got the number 1"),
        ("monitor: null", "expected text, got nothing (null); put it in quotes"),
        ("monitor: {a: 1}", "expected text, got a mapping"),
        ("mode: 3", "expected a Mode (min, max), got the number 3"),
        ("patience: 3\n{PAD}patience: 4", "has the key 'patience' twice"),
        ("<<: {patience: 3}", "has no field '<<'"),
        ("3: 4", "expected the name of a field as key, got the number 3"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(text, said):
    assert said in problems("class: P.Stopper\n" + text.replace("{PAD}", ""))[0]


@pytest.mark.parametrize("text", ["no", "off", "y", "1:30", "2026-01-31", "1_000", "=", "0b1"])
def test_words_that_yaml_1_1_would_convert_are_text(text):
    assert read(f"class: P.Stopper\nmonitor: {text}").monitor == text


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1.0), ("1e-3", 1e-3), ("-.5", -0.5), (".inf", float("inf")), ("5.", 5.0)]
)
def test_every_form_of_a_number_is_a_number_where_a_float_is_wanted(text, value):
    threshold = read(f"class: P.Stopper\nthreshold: {text}").threshold
    assert threshold == value
    assert type(threshold) is float


def test_the_class_may_be_left_out_only_where_the_type_is_a_concrete_class():
    assert read("class: P.Run\nnet: {size: 3}").net.size == 3
    assert "needs `class`" in problems("size: 3")[0]


def test_an_alias_is_one_object():
    run = read("class: P.Run\nnet: {size: 1}\nstoppers: [&a {patience: 9}, *a]")
    assert run.stoppers[0] is run.stoppers[1]


def test_what_a_class_refuses_is_a_problem_with_a_line():
    @serializable
    class Positive:
        value: int = 1

        def __post_init__(self):
            if self.value < 0:
                raise ValueError("value must not be negative")

    text = dumps(Positive()).replace("1", "-1")
    with pytest.raises(ConfigError, match=r"las.yaml:1: .*Positive refuses these values: ValueError: value must not"):
        loads(text, source="las.yaml")


def test_an_unknown_argument_of_a_function_is_named():
    text = "class: P.Run\nnet: {size: 1}\nmetrics: [{function: P.smoothed, alfa: 1}, P.smooth]"
    found = problems(text)
    assert "metrics[0].alfa" in found[0]
    assert "did you mean 'alpha'?" in found[0]
    assert f"there is no function '{PACKAGE}.smooth'; did you mean '{PACKAGE}.smoothed'?" in found[1]


def test_an_unknown_class_of_a_stranger_says_how_to_import_it():
    assert "--import MODULE" in problems("class: wonderland.Rabbit")[0]


def test_the_expected_type_is_held():
    assert "expected a Stopper" in problems("class: P.Net\nsize: 1", expected=Stopper)[0]


@pytest.mark.parametrize(
    ("override", "check"),
    [
        ("net.size=5", lambda run: run.net.size == 5),
        ("stoppers[0].monitor=val_wer", lambda run: run.stoppers[0].monitor == "val_wer"),
        ("stoppers[1]={patience: 8}", lambda run: run.stoppers[1].patience == 8),
        ("where=a b", lambda run: run.where == Path("a b")),
        ("where=", lambda run: run.where is None),
        ("extra.deep.down=[1, 2]", lambda run: run.extra == {"deep": {"down": [1, 2]}}),
        ("metrics=[P.smoothed]", lambda run: run.metrics == [smoothed]),
    ],
)
def test_an_override_changes_the_config_before_it_is_read(override, check):
    text = "class: P.Run\nnet: {size: 1}\nstoppers: [{patience: 2}]"
    assert check(read(text, overrides=[override.replace("P.", f"{PACKAGE}.")]))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("net.size=big", "--set net.size:1: net.size: expected a whole number, got 'big'"),
        ("net.sise=3", "net.sise: .*has no field 'sise'; did you mean 'size'"),
        ("stoppers[7].patience=3", "the list has 1 values, so there is no \\[7\\]"),
        ("stoppers.patience=3", "needs a mapping there"),
        ("net[0]=3", "needs a list there"),
        ("net.size", "expected path=value"),
        ("=3", "expected path=value"),
        ("a..b=3", "expected path=value"),
        ("net.size=[", "not valid YAML"),
    ],
)
def test_a_wrong_override_is_refused_like_a_wrong_config(override, said):
    with pytest.raises(ConfigError, match=said):
        read("class: P.Run\nnet: {size: 1}\nstoppers: [{patience: 2}]", overrides=[override])

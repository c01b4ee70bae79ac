"""Older files are brought along step by step; newer ones are refused with both versions named."""

from __future__ import annotations

import hashlib
from dataclasses import field

import pytest
import torch

from sonosco_like import dumps, load, loads, save, serializable, state
from sonosco_like.errors import ConfigError


@serializable(version=3, also=(f"{__name__.partition('.')[0]}.Waiter",))
class Stopper:
    """Version 1 had `wait` in epochs, version 2 called it `patience`, version 3 counts in steps."""

    patience_steps: int = 300
    monitor: str = "val_loss"
    waited_steps: int = state(0)

    @staticmethod
    def upgrade(version: int, fields: dict) -> dict:
        if version == 1:
            fields["patience"] = fields.pop("wait")
        if version == 2:
            fields["patience_steps"] = 100 * fields.pop("patience")
        return fields

    @staticmethod
    def upgrade_state(version: int, state: dict) -> dict:
        if version == 2:
            state["waited_steps"] = 100 * state.pop("waited")
        return state


PACKAGE = __name__.partition(".")[0]


def test_a_file_says_the_version_once_there_is_a_second_one():
    assert dumps(Stopper()).startswith(f"class: {PACKAGE}.Stopper@3\n")


@pytest.mark.parametrize(
    "text",
    [
        "class: P.Waiter\nwait: 5\nmonitor: val_wer",
        "class: P.Stopper\nwait: 5\nmonitor: val_wer",
        "class: P.Stopper@2\npatience: 5\nmonitor: val_wer",
        "class: P.Stopper@3\npatience_steps: 500\nmonitor: val_wer",
    ],
)
def test_every_older_version_and_name_is_read(text):
    stopper = loads(text.replace("P.", f"{PACKAGE}."))
    assert (stopper.patience_steps, stopper.monitor) == (500, "val_wer")


def test_state_is_upgraded_too():
    text = f"class: {PACKAGE}.Stopper@2\npatience: 1\nstate: {{waited: 2}}"
    assert loads(text).waited_steps == 200


def test_a_newer_version_is_refused_with_both_versions():
    with pytest.raises(ConfigError, match=r"saved as version 4 of .*Stopper, but the installed one is version 3"):
        loads(f"class: {PACKAGE}.Stopper@4")


def test_a_failing_upgrade_is_a_problem_of_the_file():
    with pytest.raises(ConfigError, match="version 1 could not be upgraded: KeyError"):
        loads(f"class: {PACKAGE}.Stopper\nmonitor: x")


def test_problems_after_an_upgrade_still_name_the_line():
    with pytest.raises(ConfigError, match=r"f.yaml:3: monitor: expected text"):
        loads(f"class: {PACKAGE}.Stopper\nwait: 3\nmonitor: 3", source="f.yaml")


def test_the_current_version_round_trips_in_a_folder(tmp_path):
    stopper = Stopper(patience_steps=7)
    stopper.waited_steps = 3
    save(stopper, tmp_path / "s")
    assert load(tmp_path / "s").waited_steps == 3


@serializable
class Position:
    """Where a walk is; an object that another class keeps as its state."""

    day: int = 0
    miles: float = 0.0
    marks: dict[str, int] = field(default_factory=dict)
    weather: str = state("dry")
    map: torch.Tensor = state(factory=lambda: torch.zeros(2))


@serializable(version=2)
class Walk:
    """Version 1 kept the position in five state fields of its own, version 2 in one object."""

    name: str = "walk"
    position: Position = state(factory=Position)
    songs: list[str] = state([])

    @staticmethod
    def upgrade_state(version: int, state: dict) -> dict:
        inner = {name: state.pop(name) for name in ("weather", "map") if name in state}
        moved = {name: state.pop(name) for name in ("day", "miles", "marks")}
        return {**state, "position": {**moved, "state": inner}}


FORMER_STATE = "state: {day: 3, miles: 7.5, marks: {start: 1}, weather: wet, songs: [one, two]}"


def test_state_fields_become_one_object():
    walk = loads(f"class: {PACKAGE}.Walk\nname: long\n{FORMER_STATE}")
    at = walk.position
    assert (at.day, at.miles, at.marks, at.weather, walk.songs) == (3, 7.5, {"start": 1}, "wet", ["one", "two"])


def test_state_fields_of_a_saved_folder_become_one_object_with_their_tensors(tmp_path):
    walk = Walk()
    walk.position.map, walk.position.day, walk.songs = torch.tensor([1.0, 2.0]), 5, ["one"]
    save(walk, tmp_path / "new")
    write_as_version_1(tmp_path / "new")
    found = load(tmp_path / "new", Walk)
    assert found.position.day == 5
    assert found.position.map.tolist() == [1.0, 2.0]
    assert found.position.weather == "dry"


def write_as_version_1(folder) -> None:
    """Turn a folder into what the first version of `Walk` would have saved, with fitting hashes."""
    graph = (folder / "trainer.yaml").read_text().replace("Walk@2", "Walk")
    (folder / "trainer.yaml").write_text(graph)
    tensors = hashlib.sha256((folder / "tensors.safetensors").read_bytes()).hexdigest()
    body = (
        f"format: 1\nfiles:\n  trainer.yaml: {hashlib.sha256(graph.encode()).hexdigest()}\n"
        f"  tensors.safetensors: {tensors}\nobjects:\n  '':\n    class: {PACKAGE}.Walk\n    day: 5\n    miles: 0.0\n"
        f"    marks: {{}}\n    weather: dry\n    map: !tensor position.state.map\n    songs: []\n"
    )
    (folder / "state.yaml").write_text(f"{body}sha256: {hashlib.sha256(body.encode()).hexdigest()}\n")


def test_what_an_upgrade_changes_inside_a_value_is_kept():
    @serializable(version=2)
    class Nested:
        table: dict[str, int] = field(default_factory=dict)

        @staticmethod
        def upgrade(version: int, fields: dict) -> dict:
            fields["table"]["added"] = 1
            return fields

    assert loads(f"class: {PACKAGE}.Nested\ntable: {{old: 2}}").table == {"old": 2, "added": 1}


def test_what_an_upgrade_leaves_as_it_is_stays_shared():
    @serializable(version=2)
    class Shared:
        a: list[int]
        b: list[int]
        c: int = 0

        @staticmethod
        def upgrade(version: int, fields: dict) -> dict:
            return {**fields, "c": 1}

    found = loads(f"class: {PACKAGE}.Shared\na: &x [1]\nb: *x")
    assert found.a is found.b
    assert found.c == 1

"""Older files are brought along step by step; newer ones are refused with both versions named."""

from __future__ import annotations

import pytest

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

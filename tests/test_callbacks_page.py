"""docs/callbacks.md says what the classes say, and its examples can be used as they stand."""

from __future__ import annotations

import dataclasses
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from sonosco_like import AbstractCallback, loads
from sonosco_like.serialization.definition import is_state

DOCS = Path(__file__).parents[1] / "docs"


GENERATOR = SimpleNamespace(**runpy.run_path(str(DOCS / "generate_callbacks.py")))  # leaves no compiled file in docs/
CALLBACKS = GENERATOR.callbacks()
PAGE = (DOCS / "callbacks.md").read_text(encoding="utf-8")


def test_the_page_is_current():
    assert GENERATOR.page() == PAGE, "docs/callbacks.md is out of date; run: python docs/generate_callbacks.py"


@pytest.mark.parametrize("name", sorted(CALLBACKS))
def test_the_example_of_a_callback_builds(name):
    section = PAGE.split(f"\n### {name}\n")[1].split("\n### ")[0]
    example = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)[1]
    (built,) = loads(example, dict[str, list[AbstractCallback]])["callbacks"]
    assert type(built) is CALLBACKS[name]


def test_the_example_at_the_top_builds():
    example = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1]
    assert len(loads(example, dict[str, list[AbstractCallback]])["callbacks"]) == 3


@pytest.mark.parametrize("name", sorted(CALLBACKS))
def test_every_field_is_explained(name):
    cls = CALLBACKS[name]
    fields = [field.name for field in dataclasses.fields(cls) if not is_state(field)]
    assert [field for field in fields if not GENERATOR.meaning_of(cls, field)] == []

"""docs/callbacks.md says what the classes say, and its examples can be used as they stand."""

from __future__ import annotations

import dataclasses
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

from sonosco_like import AbstractCallback, loads
from sonosco_like.serialization import is_state

DOCS = Path(__file__).parents[1] / "docs"

GENERATOR = SimpleNamespace(**runpy.run_path(str(DOCS / "generate_callbacks.py")))  # leaves no compiled file in docs/
CALLBACKS = GENERATOR.callbacks()
PAGE = (DOCS / "callbacks.md").read_text(encoding="utf-8")


def test_the_page_is_current():
    assert GENERATOR.page() == PAGE, "docs/callbacks.md is out of date; run: python docs/generate_callbacks.py"


def example_of(section):
    """The callbacks that the first example of a text builds."""
    example = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)[1]
    return loads(example, dict[str, list[AbstractCallback]])["callbacks"]


def test_every_example_builds():
    assert len(example_of(PAGE)) == 3
    sections = {name: PAGE.split(f"\n### {name}\n")[1].split("\n### ")[0] for name in CALLBACKS}
    built = {name: [type(each) for each in example_of(section)] for name, section in sections.items()}
    assert built == {name: [cls] for name, cls in CALLBACKS.items()}


def test_every_field_is_explained():
    missing = {
        name: [
            field.name
            for field in dataclasses.fields(cls)
            if not is_state(field) and not GENERATOR.meaning_of(cls, field.name)
        ]
        for name, cls in CALLBACKS.items()
    }
    assert {name: fields for name, fields in missing.items() if fields} == {}

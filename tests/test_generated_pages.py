"""What is generated in docs/ is current: docs/commands.md and the picture of the architecture."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

from test_layers import LAYERS, MODULES, PACKAGE, room_of

DOCS = Path(__file__).parents[1] / "docs"


def generator(name):
    return SimpleNamespace(**runpy.run_path(str(DOCS / name)))  # leaves no compiled file in docs/


def test_the_page_of_commands_is_current(run_python):
    """In a fresh process: click remembers the help option of a command from its first use."""
    code = f"import runpy, sys; sys.stdout.write(runpy.run_path({str(DOCS / 'generate_commands.py')!r})['page']())"
    made = run_python(code, encoding="utf-8", env={**os.environ, "PYTHONIOENCODING": "utf-8"}).stdout
    kept = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert made == kept, "docs/commands.md is out of date; run: python docs/generate_commands.py"


def test_the_picture_of_the_architecture_has_every_room_in_its_layer():
    """Sizes and lines may be of an earlier commit; rooms and their order may not."""
    drawing = generator("draw_architecture.py")
    exist = {room_of(module) for module in MODULES}
    rooms = [
        room
        for layer in sorted(LAYERS, reverse=True)
        for room in LAYERS[layer]
        if room in exist & set(drawing.PURPOSES)
    ]
    drawn = re.findall(r"<title>(\w+): ", (DOCS / "images" / "architecture.svg").read_text(encoding="utf-8"))
    assert drawn == rooms, "docs/images/architecture.svg is out of date; run: python docs/draw_architecture.py"
    listed = set(re.findall(r"^\| `([\w/]+\.py)`", drawing.list_files(), re.MULTILINE))
    rooms_of_files = {room for room in exist if (PACKAGE / room).is_dir()}
    inside = {str(path.relative_to(PACKAGE)) for module, path in MODULES.items() if room_of(module) in rooms_of_files}
    assert {path for path in inside if not path.endswith("__init__.py")} == listed
    folders = {room for room in exist if (PACKAGE / room).is_dir()}
    assert folders <= set(rooms), "PURPOSES in docs/draw_architecture.py lacks a room"

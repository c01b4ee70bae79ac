"""Draws images/architecture.svg from the real imports of the package: `python docs/draw_architecture.py`.

A box is a room, with its files and lines. A line between two boxes means that the upper room imports the lower one;
its width grows with the number of imports. Imports of layer 0, and those of `cli` and `catalog`, which import nearly
every room, are left out. A number in a circle is a station of the way of one batch. Point at a box to read which rooms
it imports.

When the site is built, it also puts the list of files where the page Architecture asks for it.
"""

from __future__ import annotations

import ast
import html
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from test_layers import LAYERS, MODULES, PACKAGE, imports_of, room_of  # noqa: E402

PICTURE = HERE / "images" / "architecture.svg"
LIST_OF_FILES = "<!-- the list of files -->"
WIDTH, LEFT, BOX_HEIGHT, GAP, ROW, WIDEST = 1200, 70, 46, 24, 104, 250
BATCH = ["data", "training", "models", "losses", "optim", "metrics", "callbacks", "runs"]
PURPOSES = {
    "cli": "the commands",
    "catalog": "every registered name",
    "training": "trainer, experiment",
    "callbacks": "what listens to a run",
    "evaluation": "error rates, intervals",
    "export": "ONNX, sherpa-onnx",
    "tensorboard_plugin": "Transcripts tab",
    "server": "HTTP, web page",
    "inference": "a trained recogniser",
    "runs": "the run folder",
    "decoding": "searches, language models",
    "losses": "CTC, cross entropy",
    "metrics": "error rates, averages",
    "optim": "optimizers, schedules",
    "data": "manifest to batch",
    "models": "encoders, decoders",
    "serialization": "objects as YAML",
    "events": "stages, callbacks",
    "errors": "what users read",
    "records": "Batch, Output, ...",
    "edits": "alignment of texts",
    "tensors": "length masks",
    "progress": "progress bars",
}
STYLE = """
text { font-family: system-ui, sans-serif; fill: #1b2733; }
.layer { fill: #f3f6f9; } .number { font-size: 15px; fill: #7a8794; }
.room { fill: #ffffff; stroke: #3d7ea6; stroke-width: 1.4; }
.name { font-size: 13px; font-weight: 600; } .about { font-size: 11px; fill: #51606e; }
.import { stroke: #3d7ea6; stroke-opacity: 0.35; fill: none; }
.station { fill: #d9772b; } .station-number { font-size: 12px; fill: #ffffff; font-weight: 600; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .layer { fill: #161c23; } .number, .about { fill: #9aa7b4; }
  .room { fill: #0d1117; stroke: #6cb6e0; } .import { stroke: #6cb6e0; stroke-opacity: 0.4; }
  .station-number { fill: #ffffff; }
}
"""


def main() -> None:
    """Write the picture."""
    counts = Counter((room_of(module), room_of(name)) for module in MODULES for _, name in imports_of(module, MODULES))
    sizes = Counter(room_of(module) for module in MODULES)
    lines = Counter[str]()
    for module, path in MODULES.items():
        lines[room_of(module)] += path.read_text(encoding="utf-8").count("\n")
    drawn = [layer for layer in sorted(LAYERS, reverse=True) if _rooms(layer, sizes)]
    boxes: dict[str, tuple[float, float, float]] = {}
    parts = []
    for row, layer in enumerate(drawn):
        top = 16 + row * ROW
        parts.append(f'<rect class="layer" x="8" y="{top}" width="{WIDTH - 16}" height="{BOX_HEIGHT + 24}" rx="8"/>')
        parts.append(f'<text class="number" x="26" y="{top + 40}">{layer}</text>')
        rooms = _rooms(layer, sizes)
        width = min((WIDTH - LEFT - 30 - GAP * (len(rooms) - 1)) / len(rooms), WIDEST)
        left = LEFT + (WIDTH - LEFT - 20 - len(rooms) * (width + GAP) + GAP) / 2
        for place, room in enumerate(rooms):
            boxes[room] = (left + place * (width + GAP), top + 12, width)
    parts += filter(None, (_line(boxes, upper, lower, count) for (upper, lower), count in sorted(counts.items())))
    parts += [_box(room, *place, sizes, lines, counts) for room, place in boxes.items()]
    height = 16 + len(drawn) * ROW
    PICTURE.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Rooms of the package in layers">\n<style>{STYLE}</style>\n' + "\n".join(parts) + "\n</svg>\n",
        encoding="utf-8",
    )


def list_files() -> str:
    """Every file with the first sentence of its docstring, room by room, from the top layer down."""
    sections = []
    for room in (room for layer in sorted(LAYERS, reverse=True) for room in LAYERS[layer]):
        paths = [path for module, path in MODULES.items() if room_of(module) == room and path.name != "__init__.py"]
        rows = [f"| `{path.relative_to(PACKAGE)}` | {_purpose(path)} |" for path in paths]
        if len(rows) > 1:
            sections.append("\n".join([f"### {room}", "", "| file | what is in it |", "|---|---|", *rows]))
    return "\n\n".join(sections)


def _purpose(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put in the list of files; mkdocs calls it for each page."""
    return markdown.replace(LIST_OF_FILES, list_files())


def _rooms(layer: int, sizes: Counter[str]) -> list[str]:
    """The rooms of a layer that exist and are worth a box."""
    return [room for room in LAYERS[layer] if sizes[room] and room in PURPOSES]


def _line(boxes: dict[str, tuple[float, float, float]], upper: str, lower: str, count: int) -> str:
    if upper == lower or not {upper, lower} <= boxes.keys() or upper in ("cli", "catalog") or lower in LAYERS[0]:
        return ""
    (x1, y1, w1), (x2, y2, w2) = boxes[upper], boxes[lower]
    x1, y1, x2 = x1 + w1 / 2, y1 + BOX_HEIGHT, x2 + w2 / 2
    middle = (y1 + y2) / 2
    path = f"M{x1:.0f} {y1:.0f} C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
    return f'<path class="import" d="{path}" stroke-width="{min(1 + count / 6, 9):.1f}"/>'


def _box(
    room: str,
    x: float,
    y: float,
    width: float,
    sizes: Counter[str],
    lines: Counter[str],
    counts: Counter[tuple[str, str]],
) -> str:
    below = ", ".join(sorted(other for upper, other in counts if upper == room and other != room)) or "nothing of ours"
    size = f"{sizes[room]} files, {lines[room]:,} lines" if sizes[room] > 1 else f"{lines[room]:,} lines"
    title = html.escape(f"{room}: {size}; imports {below}")
    short = room if width > 7.8 * len(room) else room.replace("tensorboard_plugin", "tb_plugin")
    return (
        f'<g><title>{title}</title><rect class="room" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" '
        f'height="{BOX_HEIGHT}" rx="6"/><text class="name" x="{x + 10:.0f}" y="{y + 19:.0f}">{short}</text>'
        f'<text class="about" x="{x + 10:.0f}" y="{y + 36:.0f}">{PURPOSES[room]}</text>'
        f"{_station(room, x + width, y)}</g>"
    )


def _station(room: str, x: float, y: float) -> str:
    if room not in BATCH:
        return ""
    number = BATCH.index(room) + 1
    return (
        f'<circle class="station" cx="{x - 16:.0f}" cy="{y + 16:.0f}" r="10"/>'
        f'<text class="station-number" x="{x - 16:.0f}" y="{y + 20:.0f}" text-anchor="middle">{number}</text>'
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--files"]:
        print(list_files())
    else:
        main()

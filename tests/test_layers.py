"""The design rule of who may import whom (layers), as a test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sonosco_like

PACKAGE = Path(sonosco_like.__file__).parent

LAYERS = {
    0: {"errors", "interrupts", "passwords", "providers", "records", "run_folder", "version"},
    1: {"serialization", "events", "links", "permissions", "strangers", "torchaudio_import"},
    2: {"data", "models"},
    3: {"decoding", "losses", "metrics", "optim"},
    4: {"inference"},
    5: {"training", "callbacks", "evaluation", "server", "tensorboard_plugin"},
    6: {"catalog"},
    7: {"cli", "__init__"},
    8: {"__main__"},
}
LAYER_OF = {room: layer for layer, rooms in LAYERS.items() for room in rooms}


def room_of(path: Path) -> str:
    part = path.relative_to(PACKAGE).parts[0]
    return part.removesuffix(".py")


def imports_of(path: Path) -> list[tuple[int, str]]:
    """The rooms of ours a file imports, with line numbers; also imports inside functions."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write the full name"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "sonosco_like" else [module]
        else:
            continue
        found += [(node.lineno, name.split(".")[1]) for name in names if name.startswith("sonosco_like.")]
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


def test_every_room_has_a_layer():
    assert {room_of(path) for path in FILES} <= set(LAYER_OF)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_only_to_lower_layers(path):
    room = room_of(path)
    wrong = [
        f"line {line}: {room} (layer {LAYER_OF[room]}) imports {other} (layer {LAYER_OF[other]})"
        for line, other in imports_of(path)
        if other != room and LAYER_OF[other] >= LAYER_OF[room]
    ]
    assert not wrong, "\n".join(wrong)


def _cycle(graph: dict[str, set[str]]) -> list[str]:
    done: set[str] = set()

    def visit(node: str, trail: list[str]) -> list[str]:
        if node in trail:
            return [*trail[trail.index(node) :], node]
        if node not in done:
            for following in sorted(graph.get(node, ())):
                if found := visit(following, [*trail, node]):
                    return found
            done.add(node)
        return []

    for start in sorted(graph):
        if found := visit(start, []):
            return found
    return []


def test_modules_within_a_room_do_not_import_each_other_in_circles():
    graph: dict[str, set[str]] = {}
    names = {".".join(("sonosco_like", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in FILES}
    for name, path in names.items():
        if name.endswith("__init__"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        wanted = [n.module or "" for n in tree.body if isinstance(n, ast.ImportFrom)]
        graph[name] = {module for module in wanted if module in names}
    assert _cycle(graph) == []


def test_the_cycle_finder_finds_cycles():
    assert _cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]
    assert _cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []

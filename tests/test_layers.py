"""The design rules of the package as tests: who may import whom, and how long a file or a function may be.

Each test lists every violation at once. A new room is one word in `LAYERS`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import sonosco_like
from sonosco_like.serialization import REGISTRY

NAME = "sonosco_like"
PACKAGE = Path(sonosco_like.__file__).parent

HELPERS_WITHOUT_IMPORTS = ["deferred_imports", "process", "redaction"]
HELPERS_WITH_ERRORS = ["torchaudio_import", "untrusted_files"]

# An import may only point to a lower number; rooms of one number are strangers.
LAYERS = {
    0: ["errors", "records", "edits", "html_page", "tensors", "progress", "version", *HELPERS_WITHOUT_IMPORTS],
    1: ["serialization", "events", *HELPERS_WITH_ERRORS],
    2: ["data", "models"],
    3: ["decoding", "losses", "metrics", "optim", "runs"],
    4: ["inference"],
    5: ["training", "callbacks", "evaluation", "export", "server", "tensorboard_plugin", "integrations"],
    6: ["catalog"],
    7: ["cli", "__init__"],
    8: ["__main__"],
}
NOT_THERE_YET = {"integrations"}
LAYER_OF = {room: layer for layer, rooms in LAYERS.items() for room in rooms}

LONGEST_FILE = 400
LONGEST_FUNCTION = 60


def modules_of(package: Path) -> dict[str, Path]:
    """Every module by its full name; a package by the name without `__init__`."""
    paths = {path: (NAME, *path.relative_to(package).with_suffix("").parts) for path in sorted(package.rglob("*.py"))}
    return {".".join(name[:-1] if name[-1] == "__init__" else name): path for path, name in paths.items()}


MODULES = modules_of(PACKAGE)


def room_of(module: str) -> str:
    _, *rest = module.split(".")
    return rest[0] if rest else "__init__"


def _base(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The full name of the module that a `from ... import` names; dots count from the module they are in."""
    if not node.level:
        return node.module or ""
    parts = module.split(".") + (["__init__"] if is_package else [])
    return ".".join([*parts[: -node.level], *([node.module] if node.module else [])])


def _is_import_call(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in ("import_module", "__import__", "find_spec")


def _names(node: ast.AST, module: str, modules: dict[str, Path], is_package: bool) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = _base(node, module, is_package)
        each = [f"{base}.{alias.name}" for alias in node.names]
        return [name if name in modules else base for name in each]
    if _is_import_call(node):
        texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
        return [text for text in texts if isinstance(text, str)]
    return []


def imports_of(module: str, modules: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """The modules of ours that a module imports, with line numbers.

    Imports of every kind: at the top, in functions, under TYPE_CHECKING, relative, and by a name in a text.
    """
    path = modules[module]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for name in _names(node, module, modules, path.name == "__init__.py"):
            if name == NAME or name.startswith(f"{NAME}."):
                yield node.lineno, name


def wrong_imports(modules: dict[str, Path]) -> list[str]:
    wrong = []
    for module, path in modules.items():
        room = room_of(module)
        for line, name in imports_of(module, modules):
            other = room_of(name)
            if other != room and LAYER_OF[other] >= LAYER_OF[room]:
                wrong.append(
                    f"{path}:{line}: {room} (layer {LAYER_OF[room]}) imports {other} (layer {LAYER_OF[other]})"
                )
    return wrong


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The nodes of one circle in their order, the first one again at the end; nothing if there is none."""
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


def import_circle(modules: dict[str, Path]) -> list[str]:
    return circle({module: {name for _, name in imports_of(module, modules)} for module in modules})


def test_the_rooms_are_those_of_the_design():
    there = {room_of(module) for module in MODULES}
    assert there - set(LAYER_OF) == set(), "These rooms have no layer."
    assert set(LAYER_OF) - NOT_THERE_YET - there == set(), "These rooms are gone from the package."


def test_imports_point_only_to_lower_layers():
    wrong = wrong_imports(MODULES)
    assert not wrong, "\n".join(wrong)


def test_modules_do_not_import_each_other_in_circles():
    assert import_circle(MODULES) == []


def test_no_file_and_no_function_is_too_long():
    wrong = []
    for path in MODULES.values():
        text = path.read_text(encoding="utf-8")
        if (lines := text.count("\n")) > LONGEST_FILE:
            wrong.append(f"{path}: {lines} lines, at most {LONGEST_FILE}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    wrong.append(f"{path}:{node.lineno}: {node.name} has {lines} lines, at most {LONGEST_FUNCTION}")
    assert not wrong, "\n".join(wrong)


def texts_in(path: Path) -> Iterator[tuple[int, str]]:
    """The texts in a module with their lines, docstrings left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def test_no_room_knows_a_class_of_another_by_its_name():
    """What a room must know of a saved folder is plain data at a known place, and not the class that wrote it."""
    import_module(f"{NAME}.catalog")
    ours = [entry.target for entry in REGISTRY.registrations() if isinstance(entry.target, type)]
    homes = {each.__name__: room_of(each.__module__) for each in ours if each.__module__.startswith(f"{NAME}.")}
    del homes["Listener"]  # of LAS; `events` has a class of this name too
    wrong = [
        f"{path}:{line}: {room_of(module)} names {text!r} of {homes[text]}"
        for module, path in MODULES.items()
        for line, text in texts_in(path)
        if module != NAME and homes.get(text, room_of(module)) != room_of(module)  # the public surface names them all
    ]
    assert not wrong, "\n".join(wrong)


def test_serialization_is_imported_by_its_face_only():
    wrong = []
    for module, path in MODULES.items():
        if room_of(module) == "serialization":
            continue
        inside = [name for _, name in imports_of(module, MODULES) if name.startswith(f"{NAME}.serialization.")]
        wrong += [f"{path} imports {name}" for name in inside]
        if "yaml.nodes" in path.read_text(encoding="utf-8"):
            wrong.append(f"{path} imports yaml.nodes")
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def package(tmp_path):
    """Write modules of a pretended package, and say what is wrong with it."""

    def write(**files: str) -> dict[str, Path]:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__dot__', '/')}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return modules_of(tmp_path)

    return write


UPWARDS = [
    "import sonosco_like.training",
    "from sonosco_like.training import trainer",
    "from sonosco_like import training",
    "def build():\n    from sonosco_like.training.trainer import ModelTrainer",
    "if TYPE_CHECKING:\n    from sonosco_like.training import trainer",
    "from ..training import trainer",
    "importlib.import_module('sonosco_like.training')",
    "from sonosco_like import catalog",
]


def test_an_import_upwards_would_be_noticed_in_any_form(package):
    for text in UPWARDS:
        modules = package(data__dot__loader=text, training__dot__trainer="", catalog="")
        assert len(wrong_imports(modules)) == 1, text
    assert wrong_imports(package(data__dot__loader="from sonosco_like.errors import ConfigError")) == []


def test_a_circle_would_be_noticed_in_any_form(package):
    for text in (
        "from sonosco_like.data.audio import load",
        "def late():\n    from sonosco_like.data import audio",
        "if TYPE_CHECKING:\n    from .audio import load",
        "import sonosco_like.data.audio",
    ):
        modules = package(data__dot__loader=text, data__dot__audio="from sonosco_like.data import loader")
        assert import_circle(modules) == [f"{NAME}.data.audio", f"{NAME}.data.loader", f"{NAME}.data.audio"], text
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_test_files_have_names_of_their_own_and_are_imported_by_them():
    paths = [path for path in sorted(Path(__file__).parent.rglob("*.py")) if path.name != "conftest.py"]
    twice = [str(path) for path in paths if [each.name for each in paths].count(path.name) > 1]
    assert twice == [], "A helper is imported by its name alone, so no two files may share one."
    packages = [path for path in paths if re.search(r"^\s*from (\.|tests\b)", path.read_text("utf-8"), re.MULTILINE)]
    assert packages == [], "Write `from tiny import make_trainer`, not `from tests.tiny import` or `from .tiny import`."

"""The trainer is one class that holds objects, and each of these alone writes its attributes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import sonosco_like
from sonosco_like import ModelTrainer

PACKAGE = Path(sonosco_like.__file__).parent
HELD = {"position", "parts", "listeners", "validator", "guard", "requests", "session", "performance_measures"}


def assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Every attribute that is assigned to, also as one of several."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (part for part in parts if isinstance(part, ast.Attribute))


def written_from_outside(text: str) -> list[str]:
    """Assignments such as `trainer.position.step = 3`."""
    found = (each for each in assigned(ast.parse(text)) if isinstance(each.value, ast.Attribute))
    return [ast.unparse(each) for each in found if each.value.attr in HELD]


def test_the_trainer_has_no_base_class():
    assert ModelTrainer.__mro__ == (ModelTrainer, object)


def test_nobody_writes_an_attribute_of_an_object_that_the_trainer_holds():
    wrong = [
        f"{path}: {each}" for path in PACKAGE.rglob("*.py") for each in written_from_outside(path.read_text("utf-8"))
    ]
    assert wrong == []


def test_a_write_from_outside_would_be_found():
    assert written_from_outside("trainer.position.step = 3\nself.guard.a, b = 1, 2\nself.position = 4") == [
        "trainer.position.step", "self.guard.a",
    ]  # fmt: skip


def test_an_epoch_is_a_short_loop():
    source = inspect.getsource(inspect.unwrap(ModelTrainer.train_epoch))
    assert len(source.splitlines()) <= 22

"""A project of a user, outside this one, is checked against our types as they are installed."""

from __future__ import annotations

import subprocess
import sys

RIGHT = """
from sonosco_like import AbstractCallback, ModelTrainer, serializable, state


@serializable
class Count(AbstractCallback):
    every: int = 10
    seen: int = state(0)


def train(trainer: ModelTrainer) -> int:
    trainer.add_callback(Count(every=3))
    trainer.start_training()
    return trainer.global_step
"""
WRONG = """
from right import Count

Count(every="three")
"""


def test_the_types_of_the_installed_package_are_known_to_mypy(tmp_path):
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--cache-dir", "cache", "right.py", "wrong.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "Found 1 error in 1 file (checked 2 source files)" in done.stdout, done.stdout + done.stderr
    assert 'wrong.py:4: error: Argument "every" to "Count" has incompatible type "str"; expected "int"' in done.stdout

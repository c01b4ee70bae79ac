"""Small files that would cost much: each is refused or harmless within a few seconds and little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bomb_worker import BOMBS, BUILT, HARMLESS, REFUSED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits processes by their address space")


@pytest.fixture(scope="module")
def results():
    """What became of each bomb, in processes that the system ends when they take too much."""
    here = Path(__file__).parent
    finished = subprocess.run(
        [sys.executable, str(here / "bomb_worker.py")],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": f"{here.parents[1]}:{here}", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_or_harmless(results, name):
    result = results["read"][name]
    assert result["status"] == (BUILT if name in HARMLESS else REFUSED), result
    assert result["length"] < 100_000, "the message is readable"


def test_comparing_bombs_is_as_cheap_as_reading_them(results):
    assert {
        name: result for name, result in results["compared"].items() if result["status"] not in (BUILT, REFUSED)
    } == {}
    assert len(results["compared"]) > 10

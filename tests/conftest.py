"""Fixtures and settings for every test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job that a script started with `&`
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as under `nohup`
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

os.environ["OMP_NUM_THREADS"] = "1"  # tests run side by side; threads of one would wait for those of another

REPOSITORY = Path(__file__).parents[1]

hypothesis.settings.register_profile("project", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("project")


@pytest.fixture
def repository() -> Path:
    """The checkout the tests run from."""
    return REPOSITORY


@pytest.fixture
def run_python():
    """Run Python code in a fresh process; returns the finished process with its output as text."""

    def run(code: str, **options) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False, **options
        )

    return run

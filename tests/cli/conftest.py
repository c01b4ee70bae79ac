"""What the tests of this folder share: the trained recogniser, and the logging that commands set up."""

from __future__ import annotations

import logging

import pytest
from trained_runs import digits

__all__ = ["digits"]


@pytest.fixture
def logging_restored():
    """The logging of the process as it was before a command in it."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)

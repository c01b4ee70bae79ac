"""A web server, and archives."""

from __future__ import annotations

import pytest

from .web import serve


@pytest.fixture
def web():
    """A server on this machine for downloads."""
    with serve() as web:
        yield web

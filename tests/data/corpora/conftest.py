"""A web server, and archives."""

from __future__ import annotations

import pytest
from web import serve


@pytest.fixture
def web(monkeypatch):
    """A server on this machine for downloads, reached directly, whatever proxy leads to the rest of the web."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve() as web:
        yield web

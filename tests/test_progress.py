"""What long work says about itself."""

from __future__ import annotations

import io
import sys

import pytest

from sonosco_like import progress
from sonosco_like.progress import no_progress, show_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_than_on_a_terminal_there_are_plain_lines(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    with show_progress("reading", 40_000, "files") as advance:
        advance(10_000)
        advance(30_000)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "reading: 10.0k of 40.0k files (25%)"
    assert lines[-1] == "reading: 40.0k of 40.0k files (100%)"


def test_short_work_says_one_line_and_unknown_amounts_are_counted(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 1e9)
    with show_progress("unpacking", None, "B") as advance:
        advance(500)
        advance(500)
    assert stream.getvalue() == "unpacking: 1000 B\n"


def test_on_a_terminal_there_is_a_bar(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with show_progress("reading", 4, "files") as advance:
        advance(4)
    assert "━" in stream.getvalue()
    assert "4 of 4 files (100%)" in stream.getvalue()


def test_calls_from_python_say_nothing(capsys):
    with no_progress("reading", 4, "files") as advance:
        advance(4)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("total", [0, None])
def test_nothing_to_do_is_no_division_by_zero(total, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with show_progress("reading", total, "files") as advance:
        advance(0)
    assert stream.getvalue() == "reading: 0 files\n"

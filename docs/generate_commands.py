"""Writes commands.md from the command line itself: `python docs/generate_commands.py`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from sonosco_like.cli import sonosco

PAGE = Path(__file__).with_name("commands.md")
INTRODUCTION = """# Commands

This page is what `sonosco COMMAND --help` prints. `python -m sonosco_like` is the same program.

Exit codes: 0 done; 1 the run failed, and the message says how to resume it; 2 wrong usage or config; 128 + the signal's
number (130 for Ctrl-C) if a signal ended it, after a checkpoint of that very batch.
"""


def page() -> str:
    """The whole page."""
    context = click.Context(sonosco, info_name="sonosco", **sonosco.context_settings)
    return INTRODUCTION + "".join(_sections(sonosco, context))


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """The help of a command, and of all commands below it."""
    context.terminal_width = context.max_content_width = 120
    yield f"\n## {context.command_path}\n\n```text\n{textwrap.dedent(command.get_help(context)).strip()}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _sections(child, click.Context(child, info_name=name, parent=context))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

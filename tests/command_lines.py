"""Whether a line that somebody is told to type is a command of ours, without running it."""

from __future__ import annotations

import shlex

import click

from sonosco_like.cli import sonosco


def check_command(line: str) -> None:
    """Raise if a command, one of its options, or the number of its arguments is wrong; nothing is run."""
    command: click.Command = sonosco
    context, words = click.Context(sonosco), shlex.split(line)
    words = words[1:] if words[0] == "--debug" else words
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        _, command, words = command.resolve_command(context, words)
        context = click.Context(command, parent=context)
    values, left, _ = command.make_parser(context).parse_args(args=list(words))
    if isinstance(command, click.Group) or "help" in values:
        return
    assert not left, f"{line!r} has more arguments than the command takes: {left}"
    for parameter in command.params:
        value = values.get(parameter.name)
        given = isinstance(value, str | int) or (isinstance(value, list | tuple) and len(value) > 0)
        assert given or not parameter.required, f"{line!r} leaves out {parameter.name}"
        if given and isinstance(value, str) and isinstance(parameter.type, click.Choice):
            parameter.type.convert(value, parameter, context)

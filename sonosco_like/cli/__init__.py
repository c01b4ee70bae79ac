"""The command line. A command imports slow packages such as torch only when it runs, so that help is fast."""

from __future__ import annotations

import importlib
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from sonosco_like.cli import terminal
from sonosco_like.cli.terminal import survive_closed_console
from sonosco_like.errors import ConfigError, SonoscoError, StorageError, did_you_mean
from sonosco_like.redaction import mask_secrets
from sonosco_like.version import __version__

DONE, FAILED, WRONG_USAGE = 0, 1, 2  # and 128 + the number of a signal

_COMMANDS = {  # each command and its module
    "check": "check",
    "completion": "completion",
    "dashboard": "dashboard",
    "data": "data",
    "diff": "runs",
    "evaluate": "evaluate",
    "export": "export",
    "init": "init",
    "resume": "train",
    "runs": "runs",
    "schema": "completion",
    "serve": "serve",
    "train": "train",
    "transcribe": "transcribe",
    "verify-resume": "verify_resume",
    "weights": "weights",
}


class _LazyGroup(click.Group):
    """A group that imports the module of a command when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"{__name__}.{_COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"There is no command {args[0]!r}{did_you_mean(args[0], _COMMANDS)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sonosco")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the Python traceback of an error.")
def sonosco() -> None:
    """Train speech recognisers from one YAML file, and resume them bit for bit.

    \b
    Examples:
      sonosco train --config configs/las.yaml                 train on a generated corpus
      sonosco init mine --train train.jsonl --val val.jsonl   a config that fits your data
      sonosco resume runs/las                                 continue after Ctrl-C or a crash
      sonosco evaluate runs/las --manifest corpus/test.jsonl  word and character error rates
      sonosco transcribe runs/las call.wav                    text of a recording
      sonosco serve runs/las                                  speak to it in a browser
      sonosco completion bash >> ~/.bashrc                    let your shell complete commands
      sonosco schema > sonosco.schema.json                    let your editor complete configs
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 done, 1 failed, 2 wrong usage or config, 129, 130 or 143 after a signal."""
    survive_closed_console()
    terminal.listen()
    try:
        code = run(list(sys.argv[1:] if args is None else args))
    except KeyboardInterrupt:  # while a command printed its last lines
        code = terminal.report_signal(signal.SIGINT)
    except SystemExit:
        if not terminal.interrupted_by():
            raise
        code = terminal.report_signal(terminal.interrupted_by())
    terminal.stop_listening()
    sys.exit(code)


def run(args: list[str]) -> int:
    """Run a command; an error is printed in a line or two, and with its traceback only after `--debug`."""
    try:
        result = sonosco.main(args, prog_name="sonosco", standalone_mode=False)
        return result if isinstance(result, int) else DONE
    except click.ClickException as error:
        error.show()
        return WRONG_USAGE
    except click.exceptions.Abort:
        return terminal.report_signal(signal.SIGINT)
    except Exception as error:
        if number := terminal.interrupted_by():  # the error is a consequence of the signal
            return terminal.report_signal(number)
        if "--debug" in args:
            click.echo(mask_secrets(traceback.format_exc()), err=True)
        else:
            click.echo(mask_secrets(_message(error)), err=True)
        return _exit_code(error)


def _message(error: Exception) -> str:
    if isinstance(error, ConfigError):
        many = len(error.problems) > 1
        head = f"{len(error.problems)} problems:\n" if many else ""
        return f"Error: {head}{error}"
    if isinstance(error, SonoscoError):
        return f"Error: {error}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"Error: {error.filename}: {error.strerror}."
    kind = type(error).__name__
    return f"Error: {kind}: {error}\nThis should not have happened. `sonosco --debug ...` shows the traceback."


def _exit_code(error: Exception) -> int:
    if isinstance(error, SonoscoError) and not isinstance(error, StorageError):
        return getattr(error, "exit_code", WRONG_USAGE)
    return FAILED

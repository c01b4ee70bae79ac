"""The options that several commands have, and what becomes of them."""

from __future__ import annotations

import functools
import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sonosco_like.cli.own_data import SETS
from sonosco_like.errors import SonoscoError, UsageError
from sonosco_like.permissions import VARIABLE, writing_only_to

PATH = click.Path(path_type=Path)

config = click.option("--config", type=PATH, required=True, help="The experiment, as YAML.")
imports = click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="A module of yours whose classes the config names."
)
overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a value, which is written as YAML: --set trainer.epochs=3, and in a list --set "
    "'trainer.callbacks[2].patience=5', counted from 0; can be given several times.",
)


device = click.option("--device", help="Such as cpu or cuda; a GPU if there is one, with torchrun each process's own.")


def with_device(overrides: tuple[str, ...], device: str | None) -> tuple[str, ...]:
    """The overrides of a config, and the device among them."""
    return overrides if device is None else (*overrides, f"trainer.device={device}")


def allow_write(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option --allow-write, and what holds without it: a config writes to the run and to the working directory."""

    @click.option(
        "--allow-write",
        "allowed",
        multiple=True,
        metavar="PLACE",
        help="A folder or URL elsewhere that the config may write to (remote, corpus, tracking); can be given several "
        f"times, or for good in the environment as {VARIABLE}.",
    )
    @functools.wraps(command)
    def guarded(allowed: tuple[str, ...], **options: Any) -> Any:
        folders = [options[name] for name in ("run_dir", "into", "keep") if options.get(name) is not None]
        with writing_only_to([".", *folders, *allowed]):
            return command(**options)

    return guarded


def manifests(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that put the user's own data into any config: --train, --val and --test."""
    for name in reversed(SETS):
        said = f"A {name} manifest of your own, instead of the config's."
        command = click.option(f"--{name}", f"{name}_manifest", type=PATH, help=said)(command)
    return command


opening = click.option(
    "--open",
    "opening",
    type=click.Choice(["all", "sample", "none"]),
    default="sample",
    show_default=True,
    help="Recordings to decode whole: all, an hour of them, or none, where not even headers are read.",
)


def import_modules(modules: tuple[str, ...]) -> None:
    """Import what the user named, from the current folder too, so that its classes are registered."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever the user's own code raises
            said = str(error) if isinstance(error, SonoscoError) else f"{type(error).__name__}: {error}."
            place = _place_of(error)
            where = f" ({place})" if place else ""
            raise UsageError(f"--import {module}{where}: {said} `sonosco --debug ...` shows all of it.") from error


def _place_of(error: Exception) -> str:
    """File and line of the user's code at which an import failed, or nothing if it did not get that far."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}" if error.filename else ""
    ours = str(Path(__file__).parents[1])
    places = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, "<frozen", importlib.__file__))
    ]
    return places[-1] if places else ""

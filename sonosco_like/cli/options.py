"""The options that several commands have, and what becomes of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.errors import SonoscoError, UsageError

if TYPE_CHECKING:
    from sonosco_like.training import Experiment

PATH = click.Path(path_type=Path)
_SETS = ("train", "val", "test")

config = click.option("--config", type=PATH, required=True, help="The experiment, as YAML.")
imports = click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="A module of yours whose classes the config names."
)
overrides = click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value: --set trainer.epochs=3"
)


def manifests(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that put the user's own data into any config: --train, --val and --test."""
    for name in reversed(_SETS):
        said = f"A {name} manifest of your own, instead of the config's."
        command = click.option(f"--{name}", f"{name}_manifest", type=PATH, help=said)(command)
    return command


def own_data(manifests: Mapping[str, Path | None]) -> list[str]:
    """The manifest options as overrides of the config."""
    given = {name: path.absolute().as_posix() for name in _SETS if (path := manifests[f"{name}_manifest"])}
    return [f"trainer.{name}_data_loader.dataset.manifest={path!r}" for name, path in given.items()]


def leave_out_missing_data(experiment: Experiment, manifests: Mapping[str, Path | None]) -> None:
    """With data of the user's own, the config's corpus is not made, and what it would be tested on is not there."""
    if any(manifests.values()):
        experiment.corpus = None
        if manifests["test_manifest"] is None:
            experiment.trainer.test_data_loader = None


def import_modules(modules: tuple[str, ...]) -> None:
    """Import what the user named, from the current folder too, so that its classes are registered."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")
    for module in modules:
        try:
            importlib.import_module(module)
        except SonoscoError:
            raise
        except Exception as error:  # whatever the user's own code raises
            said = f"--import {module}: {type(error).__name__}: {error}. `sonosco --debug ...` shows where."
            raise UsageError(said) from error

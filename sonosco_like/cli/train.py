"""`sonosco train`: one YAML file in, a run folder out."""

from __future__ import annotations

import importlib
import logging
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.errors import UsageError

if TYPE_CHECKING:
    from sonosco_like.training import Experiment

_PATH = click.Path(path_type=Path)
_SETS = ("train", "val", "test")

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
        command = click.option(f"--{name}", f"{name}_manifest", type=_PATH, help=said)(command)
    return command


@click.command()
@click.option("--config", type=_PATH, required=True, help="The experiment, as YAML.")
@click.option("--run-dir", type=_PATH, help="Where the run is kept; runs/<time>_<name> if not given.")
@manifests
@overrides
@click.option(
    "--resume",
    type=click.Choice(["never", "auto", "must"]),
    default="never",
    show_default=True,
    help="What to do with a run dir that holds a run: refuse, continue it, or insist on continuing.",
)
@imports
def train(
    config: Path,
    run_dir: Path | None,
    overrides: tuple[str, ...],
    resume: str,
    modules: tuple[str, ...],
    **manifests: Path | None,
) -> int:
    """Train a recogniser.

    \b
    Examples:
      sonosco train --config configs/las.yaml
      sonosco train --config configs/las.yaml --train my/train.jsonl --val my/val.jsonl --set trainer.epochs=50
    """
    import_modules(modules)
    from sonosco_like.training import open_run, read_experiment

    own = own_data(manifests)
    if run_dir is not None and (run_dir / "config.yaml").exists() and resume != "never":
        return continue_run(*open_run(run_dir, [*overrides, *own]))
    if resume == "must":
        raise UsageError(f"There is no run to resume in {run_dir or 'a new folder'}.")
    experiment = read_experiment(config, [*overrides, *own])
    leave_out_missing_data(experiment, manifests)
    folder = run_dir or Path("runs") / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_{experiment.name}"
    _say(experiment, f"run folder: {folder}")
    prepare(experiment)
    return _finish(experiment, experiment.start(folder), folder)


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


def continue_run(experiment: Experiment, step: int) -> int:
    """Train on, and say from where."""
    _say(experiment, f"run folder: {experiment.folder}\nresumed from step {step}")
    prepare(experiment)
    return _finish(experiment, experiment.resume(), experiment.folder)


def prepare(experiment: Experiment) -> None:
    """Say what happens on the console, and have the corpus made: of several processes the first does both."""
    processes = experiment.trainer.processes
    level = logging.INFO if processes.is_first else logging.WARNING
    logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)
    if experiment.corpus is not None and processes.is_first:
        from sonosco_like.data.tools.progress import show_progress

        experiment.corpus.prepare(show_progress)
    processes.wait()


def import_modules(modules: tuple[str, ...]) -> None:
    """Import what the user named, from the current folder too, so that its classes are registered."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise UsageError(f"--import {module}: {error}.") from error


def _finish(experiment: Experiment, received: int, folder: Path) -> int:
    if received:
        name = signal.Signals(received).name
        _say(experiment, f"interrupted by {name}; continue with: sonosco resume {folder}")
        return 128 + received
    _say(experiment, f"done: {folder}")
    return 0


def _say(experiment: Experiment, message: str) -> None:
    if experiment.trainer.processes.is_first:
        click.echo(message)

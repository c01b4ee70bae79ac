"""`sonosco train`: one YAML file in, a run folder out."""

from __future__ import annotations

import importlib
import logging
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonosco_like.errors import UsageError

if TYPE_CHECKING:
    from sonosco_like.training import Experiment

_PATH = click.Path(path_type=Path)

imports = click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="A module of yours whose classes the config names."
)
overrides = click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value: --set trainer.epochs=3"
)


@click.command()
@click.option("--config", type=_PATH, required=True, help="The experiment, as YAML.")
@click.option("--run-dir", type=_PATH, help="Where the run is kept; runs/<time>_<name> if not given.")
@click.option("--train", "train_manifest", type=_PATH, help="Train on this manifest instead of the config's.")
@click.option("--val", "val_manifest", type=_PATH, help="Validate on this manifest instead of the config's.")
@click.option("--test", "test_manifest", type=_PATH, help="Test on this manifest instead of the config's.")
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
    train_manifest: Path | None,
    val_manifest: Path | None,
    test_manifest: Path | None,
    overrides: tuple[str, ...],
    resume: str,
    modules: tuple[str, ...],
) -> int:
    """Train a recogniser.

    \b
    Examples:
      sonosco train --config configs/las.yaml
      sonosco train --config configs/las.yaml --train my/train.jsonl --val my/val.jsonl --set trainer.epochs=50
    """
    import_modules(modules)
    from sonosco_like.training import open_run, read_experiment

    holds_run = run_dir is not None and (run_dir / "config.yaml").exists()
    if run_dir is not None and holds_run and resume != "never":
        experiment, step = open_run(run_dir)
        return continue_run(experiment, step)
    if resume == "must":
        raise UsageError(f"There is no run to resume in {run_dir or 'a new folder'}.")
    manifests = {"train": train_manifest, "val": val_manifest, "test": test_manifest}
    given = {name: path.absolute().as_posix() for name, path in manifests.items() if path}
    own = [f"trainer.{name}_data_loader.dataset.manifest={path!r}" for name, path in given.items()]
    experiment = read_experiment(config, [*overrides, *own])
    if own:
        experiment.corpus = None
    folder = run_dir or Path("runs") / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_{experiment.name}"
    click.echo(f"run folder: {folder}")
    prepare(experiment)
    return _finish(experiment.start(folder), folder)


def continue_run(experiment: Experiment, step: int) -> int:
    """Train on, and say from where."""
    click.echo(f"run folder: {experiment.folder}\nresumed from step {step}")
    prepare(experiment)
    return _finish(experiment.resume(), experiment.folder)


def prepare(experiment: Experiment) -> None:
    """Say what happens on the console, and have the corpus made."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if experiment.corpus is not None:
        from sonosco_like.data.tools.progress import show_progress

        experiment.corpus.prepare(show_progress)


def import_modules(modules: tuple[str, ...]) -> None:
    """Import what the user named, from the current folder too, so that its classes are registered."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise UsageError(f"--import {module}: {error}.") from error


def _finish(received: int, folder: Path) -> int:
    if received:
        click.echo(f"interrupted by {signal.Signals(received).name}; continue with: sonosco resume {folder}")
        return 128 + received
    click.echo(f"done: {folder}")
    return 0

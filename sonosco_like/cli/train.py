"""`sonosco train`: one YAML file in, a run folder out."""

from __future__ import annotations

import logging
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonosco_like.cli.options import (
    PATH,
    config,
    import_modules,
    imports,
    leave_out_missing_data,
    manifests,
    overrides,
    own_data,
)
from sonosco_like.errors import UsageError
from sonosco_like.run_folder import CONFIG

if TYPE_CHECKING:
    from sonosco_like.training import Experiment


@click.command()
@config
@click.option("--run-dir", type=PATH, help="Where the run is kept; runs/<time>_<name> if not given.")
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

    A run that is interrupted (Ctrl-C, SIGTERM) is saved after the batch under way and ends with exit code 130 or 143;
    one that fails ends with 1, a config that is wrong with 2. `sonosco resume` continues it.

    \b
    Examples:
      sonosco train --config configs/las.yaml
      sonosco train --config configs/las.yaml --run-dir runs/las --resume auto
      sonosco train --config configs/las.yaml --train my/train.jsonl --val my/val.jsonl --set trainer.epochs=50
    """
    import_modules(modules)
    from sonosco_like.training import open_run, read_experiment

    own = own_data(manifests)
    if run_dir is not None and (run_dir / CONFIG).exists() and resume != "never":
        return continue_run(*open_run(run_dir, [*overrides, *own]))
    if resume == "must":
        raise UsageError(f"There is no run to resume in {run_dir or 'a new folder'}.")
    experiment = read_experiment(config, [*overrides, *own])
    leave_out_missing_data(experiment, manifests)
    name = f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_{experiment.name}"
    folder = run_dir or Path("runs") / experiment.trainer.processes.from_first(name)
    _say(experiment, f"run folder: {folder}")
    prepare(experiment)
    return _finish(experiment, experiment.start(folder), folder)


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

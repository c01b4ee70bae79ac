"""`sonosco train`: one YAML file in, a run folder out."""

from __future__ import annotations

import itertools
import logging
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonosco_like.cli.options import (
    PATH,
    allow_write,
    config,
    device,
    import_modules,
    imports,
    manifests,
    overrides,
    with_device,
)
from sonosco_like.cli.own_data import open_with_own_data, read_with_own_data
from sonosco_like.errors import UsageError
from sonosco_like.passwords import MaskingFormatter
from sonosco_like.run_folder import CONFIG

if TYPE_CHECKING:
    from sonosco_like.training import Experiment


@click.command()
@config
@click.option("--run-dir", type=PATH, help="Where the run is kept; runs/<time>_<name> if not given.")
@manifests
@overrides
@device
@click.option(
    "--resume",
    type=click.Choice(["never", "auto", "must"]),
    default="never",
    show_default=True,
    help="What to do with a run dir that holds a run: refuse, continue it, or insist on continuing.",
)
@imports
@allow_write
def train(
    config: Path,
    run_dir: Path | None,
    overrides: tuple[str, ...],
    device: str | None,
    resume: str,
    modules: tuple[str, ...],
    **manifests: Path | None,
) -> int:
    """Train a recogniser.

    A run that is interrupted (Ctrl-C, SIGTERM, a closed terminal) is saved after the batch under way and ends with exit
    code 130, 143 or 129; one that fails ends with 1, a config that is wrong with 2. `sonosco resume` continues it.

    \b
    Examples:
      sonosco train --config configs/las.yaml
      sonosco train --config configs/las.yaml --run-dir runs/las --resume auto
      sonosco train --config configs/las.yaml --train my/train.jsonl --val my/val.jsonl --set trainer.epochs=50
    """
    import_modules(modules)
    overrides = with_device(overrides, device)
    if run_dir is not None and (run_dir / CONFIG).exists() and resume != "never":
        return continue_run(*open_with_own_data(run_dir, config, overrides, manifests))
    if resume == "must":
        raise UsageError(f"There is no run to resume in {run_dir or 'a new folder'}.")
    experiment = read_with_own_data(config, overrides, manifests)
    folder = run_dir or Path(experiment.trainer.processes.from_first(_new_folder(experiment.name)))
    _say(experiment, f"run folder: {folder}")
    prepare(experiment)
    return _finish(experiment, experiment.start(folder), folder)


def _new_folder(name: str) -> str:
    """A folder named after the time that is not there yet, also if another run of that name began in this second."""
    named = f"runs/{time.strftime('%Y-%m-%d_%H-%M-%S')}_{name}"
    numbered = (f"{named}_{number}" for number in itertools.count(2))
    return next(folder for folder in itertools.chain([named], numbered) if not Path(folder).exists())


def continue_run(experiment: Experiment, step: int) -> int:
    """Train on, and say from where."""
    _say(experiment, f"run folder: {experiment.folder}\nresumed from step {step}")
    finished = _why_finished(experiment)
    if finished:
        _say(experiment, finished)
    prepare(experiment)
    return _finish(experiment, experiment.resume(), experiment.folder)


def prepare(experiment: Experiment) -> None:
    """Say what happens on the console, and have the corpus made: of several processes the first does both."""
    processes = experiment.trainer.processes
    level = logging.INFO if processes.is_first else logging.WARNING
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(MaskingFormatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[console])
    if experiment.corpus is not None and processes.is_first:
        from sonosco_like.data.tools.progress import show_progress

        with processes.told():
            experiment.corpus.prepare(show_progress)
    processes.wait()


def _why_finished(experiment: Experiment) -> str:
    """Why a run was at its end before it was continued, and how it goes on; nothing if it was not.

    Its last checkpoint may be an earlier one, whose last steps are then done again, with the same bits.
    """
    from sonosco_like.cli.run_table import finished_epochs

    trainer = experiment.trainer
    command = f"To train on: sonosco resume {shlex.quote(str(experiment.folder))} --set trainer"
    if max(trainer.epoch, finished_epochs(experiment.folder)) >= trainer.epochs:
        said = f"{trainer.epochs} of {trainer.epochs} epochs are done"
        return f"This run was finished already: {said}. {command}.epochs={2 * trainer.epochs}"
    if trainer._finished():
        said = f"its `max_duration` of {trainer.max_duration} is reached"
        return f"This run was finished already: {said}. {command}.max_duration=..."
    return ""


def _finish(experiment: Experiment, received: int, folder: Path) -> int:
    if received:
        name = signal.Signals(received).name
        _say(experiment, f"interrupted by {name}; continue with: sonosco resume {shlex.quote(str(folder))}")
        return 128 + received
    _say(experiment, f"done: {folder}")
    return 0


def _say(experiment: Experiment, message: str) -> None:
    if experiment.trainer.processes.is_first:
        click.echo(message)

"""`sonosco train` and `sonosco resume`: train a config in a run folder, and continue a run."""

from __future__ import annotations

import itertools
import logging
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.cli.options import (
    PATH,
    allow_write,
    config,
    device,
    import_modules,
    imports,
    manifests,
    open_with_own_data,
    overrides,
    read_with_own_data,
    with_device,
)
from sonosco_like.errors import UsageError
from sonosco_like.redaction import MaskingFormatter
from sonosco_like.runs.run_folder import CONFIG, TENSORBOARD, shown

if TYPE_CHECKING:
    from sonosco_like.training import Experiment, ModelTrainer


@click.command()
@config
@click.option("--run-dir", type=PATH, help="The run folder; runs/<time>_<name> if not given.")
@manifests
@overrides
@device
@click.option(
    "--resume",
    type=click.Choice(["never", "auto", "must"]),
    default="never",
    show_default=True,
    help="If the run folder holds a run: never continue it, continue it, or fail if there is none to continue.",
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
    **manifests: Path | tuple[Path, ...] | None,
) -> int:
    """Train a recogniser.

    An interrupted run (Ctrl-C, SIGTERM, a closed terminal) is saved after its current batch, with exit code 130, 143 or
    129. The exit code is 1 for a run that failed, 2 for a wrong config. `sonosco resume` continues a run.

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
    _print(experiment, f"run folder: {folder}")
    prepare(experiment, folder)
    return _finish(experiment, experiment.start(folder), folder)


def _new_folder(name: str) -> str:
    """A new folder named after the time, with a number if another run of that name started in the same second."""
    named = f"runs/{time.strftime('%Y-%m-%d_%H-%M-%S')}_{name}"
    numbered = (f"{named}_{number}" for number in itertools.count(2))
    return next(folder for folder in itertools.chain([named], numbered) if not Path(folder).exists())


def continue_run(experiment: Experiment, step: int) -> int:
    """Continue the training, and print from which step."""
    _print(experiment, f"run folder: {shown(experiment.folder)}\nresumed from step {step}")
    finished = _why_finished(experiment)
    if finished:
        _print(experiment, finished)
    prepare(experiment)
    return _finish(experiment, experiment.resume(), experiment.folder)


def prepare(experiment: Experiment, new_folder: Path | None = None) -> None:
    """Log to the console and generate the corpus; of several processes only the first does both.

    A folder that a new run cannot use is refused before the corpus is generated.
    """
    from sonosco_like.training.experiment import refuse_unusable_folder

    processes = experiment.trainer.processes
    level = logging.INFO if processes.is_first else logging.WARNING
    console = _Console()
    console.setFormatter(MaskingFormatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[console])
    if processes.is_first:
        from sonosco_like.progress import show_progress

        with processes.reporting_failures():
            if new_folder is not None:
                refuse_unusable_folder(new_folder)
            if experiment.corpus is not None:
                experiment.corpus.prepare(show_progress)
    processes.wait()


class _Console(logging.Handler):
    """Writes to what is `sys.stderr` at that moment: a progress bar replaces it, so that lines stay whole above it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


def _why_finished(experiment: Experiment) -> str:
    """Why a run was finished before it was resumed, and how to train it further; empty if it was not finished.

    If its last checkpoint is from before its end, the last steps are trained again, with the same bits.
    """
    from sonosco_like.runs.run_table import finished_epochs

    trainer = experiment.trainer
    command = f"To train it further: sonosco resume {shlex.quote(shown(experiment.folder))} --set trainer"
    if max(trainer.epoch, finished_epochs(experiment.folder)) >= trainer.epochs:
        reason = f"{trainer.epochs} of {trainer.epochs} epochs are done"
        return f"This run was finished already: {reason}. {command}.epochs={2 * trainer.epochs}"
    if trainer.session.is_finished:
        reason = f"its `max_duration` of {trainer.max_duration} is reached"
        return f"This run was finished already: {reason}. {command}.max_duration=..."
    return ""


def _finish(experiment: Experiment, received: int, folder: Path) -> int:
    if not experiment.trainer.processes.is_first:
        return 128 + received if received else 0
    name = shown(folder)
    click.echo(describe_interrupt(experiment, received, name) if received else describe_end(experiment, name))
    return 128 + received if received else 0


def _print(experiment: Experiment, message: str) -> None:
    if experiment.trainer.processes.is_first:
        click.echo(message)


@click.command()
@click.argument("run_dir")
@click.option(
    "--run-dir", "into", type=PATH, help="The folder to which a remote run is fetched; runs/<its name> if not given."
)
@overrides
@device
@imports
@allow_write
def resume(
    run_dir: str, into: Path | None, overrides: tuple[str, ...], device: str | None, modules: tuple[str, ...]
) -> int:
    """Continue a run from its newest complete checkpoint.

    RUN_DIR is a run folder, or the URL of a remote copy. --set can change settings that fit what the run has learned,
    such as epochs, learning rate, patience of callbacks and number of workers; changes.yaml in the run folder records
    each change.

    \b
    Examples:
      sonosco resume runs/2026-01-31_12-00-00_las-digits
      sonosco resume runs/las --set trainer.epochs=20 --set trainer.optimizer.lr=0.0005
    """
    import_modules(modules)
    from sonosco_like.runs.remote_copy import is_url
    from sonosco_like.training import open_run

    if into is not None and not is_url(run_dir):
        raise UsageError(f"--run-dir is only for a remote run, but {run_dir} is not a URL. Leave out --run-dir.")
    return continue_run(*open_run(run_dir, with_device(overrides, device), into))


def describe_end(experiment: Experiment, folder: str) -> str:
    """The lines for a run that was finished: its scores, its time, and commands to evaluate, use and look at it."""
    from sonosco_like.callbacks.speed import format_duration

    trainer = experiment.trainer
    epochs = f"{trainer.epoch} epoch{'s' * (trainer.epoch != 1)}"
    lines = [f"done: {folder}, {epochs}, {trainer.global_step:,} steps in {format_duration(trainer.seconds)}"]
    lines += (f"  {line}" for line in _scores(trainer))
    lines += ["What you can do now:", *(f"  {shlex.join(command)}" for command in _next_commands(trainer, folder))]
    return "\n".join(lines)


def describe_interrupt(experiment: Experiment, received: int, folder: str) -> str:
    """The lines for a run that a signal interrupted: where it stands, and the command that continues it."""
    from sonosco_like.events import describe_place

    trainer = experiment.trainer
    resume = shlex.join([program("sonosco"), "resume", folder])
    lines = [f"interrupted by {signal.Signals(received).name} in {describe_place(trainer)}; saved in {folder}"]
    return "\n".join([*lines, *(f"  {line}" for line in _scores(trainer)), f"continue with: {resume}"])


def program(name: str) -> str:
    """A program beside the one that runs, as the user would write it: `.venv/bin/sonosco` was called by its path."""
    called = Path(sys.argv[0])
    is_by_path = called.name == "sonosco" and len(called.parts) > 1 and not called.is_absolute()
    return str(called.with_name(name)) if is_by_path else name


def _scores(trainer: ModelTrainer) -> Iterator[str]:
    """The best and the last error rate of each validation set, or the loss if no error rate was measured."""
    from sonosco_like.callbacks.measures import format_value, improves, lower_is_better, short_name

    points = trainer.observations.points()
    for name in trainer.observations.headlines():
        found = [(point.measures[name], point.step) for point in points if name in point.measures]
        best, lower = found[0], lower_is_better(name, trainer)
        for value, step in found:
            best = (value, step) if improves(value, best[0], lower) else best
        last = format_value(name, found[-1][0])
        yield f"{short_name(name)}: best {format_value(name, best[0])} at step {best[1]:,}, last {last}"


def _next_commands(trainer: ModelTrainer, folder: str) -> Iterator[list[str]]:
    sonosco = program("sonosco")
    dataset = _dataset_to_evaluate(trainer)
    manifest = shown(_manifest_to_evaluate(trainer, dataset)) if dataset is not None else "MANIFEST"
    yield [sonosco, "evaluate", folder, "--manifest", manifest]
    audio = dataset.utterances[int(dataset.usable[0])].audio_filepath if dataset is not None else "RECORDING.wav"
    yield [sonosco, "transcribe", folder, shown(audio)]
    if Path(folder, TENSORBOARD).is_dir():
        yield [program("tensorboard"), "--logdir", folder]
    else:
        yield [sonosco, "runs", folder]


def _manifest_to_evaluate(trainer: ModelTrainer, dataset: Any) -> Path:
    """The manifest of a dataset, or `test.jsonl` beside it if the run has no test set of its own."""
    manifest: Path = dataset.manifests[0]
    beside = manifest.with_name("test.jsonl")
    return beside if trainer.test_data_loader is None and beside.is_file() else manifest


def _dataset_to_evaluate(trainer: ModelTrainer) -> Any:
    """The dataset of the test set, or else of the first validation set; None if neither reads a manifest."""
    for loader in (trainer.test_data_loader, *trainer.validation_sets.values()):
        dataset = getattr(loader, "dataset", None)
        if hasattr(dataset, "manifests") and hasattr(dataset, "utterances"):
            return dataset
    return None

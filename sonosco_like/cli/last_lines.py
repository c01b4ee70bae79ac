"""The last lines of `sonosco train` and `sonosco resume`: what the run reached, and which commands come next."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonosco_like.runs.run_folder import TENSORBOARD, shown

if TYPE_CHECKING:
    from sonosco_like.training import Experiment, ModelTrainer


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
    beside: Path = dataset.manifest.with_name("test.jsonl")
    return beside if trainer.test_data_loader is None and beside.is_file() else dataset.manifest


def _dataset_to_evaluate(trainer: ModelTrainer) -> Any:
    """The dataset of the test set, or else of the first validation set; None if neither reads a manifest."""
    for loader in (trainer.test_data_loader, *trainer.validation_sets.values()):
        dataset = getattr(loader, "dataset", None)
        if isinstance(getattr(dataset, "manifest", None), Path) and hasattr(dataset, "utterances"):
            return dataset
    return None

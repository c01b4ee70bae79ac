"""`sonosco check`: build the experiment of a config and train one batch, to find problems before a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.cli.options import (
    allow_write,
    config,
    import_modules,
    imports,
    manifests,
    opening,
    overrides,
    read_with_own_data,
)
from sonosco_like.cli.train import prepare

if TYPE_CHECKING:
    from sonosco_like.training import Experiment
    from sonosco_like.training.inspection import Inspection


@click.command()
@config
@manifests
@overrides
@imports
@opening
@allow_write
def check(
    config: Path,
    overrides: tuple[str, ...],
    modules: tuple[str, ...],
    opening: Any,
    **manifests: Path | tuple[Path, ...] | None,
) -> int:
    """Build the parts of a config, and try its largest batches.

    Prints what a run would cost: parameters, batches, hours of audio, and the memory that batches of each length need;
    if they do not fit, which batch size would. Finds rows of the data that a run could not use: texts without labels,
    in another case or alphabet, or too long for CTC; recordings that are missing, unreadable, cut off or silent; and
    warns of others: very quiet, too loud, durations that are wrong. Each kind comes with its count, the first rows and
    the remedy. Writes no files, except for the corpus if the config generates one that does not exist yet. The exit
    code is 0 if a run can begin, else 2.

    \b
    Examples:
      sonosco check --config configs/las.yaml
      sonosco check --config configs/las.yaml --train my/train.jsonl --val my/val.jsonl --open all
    """
    import_modules(modules)
    from sonosco_like.progress import show_progress
    from sonosco_like.training.inspection import inspect_experiment

    experiment = read_with_own_data(config, overrides, manifests)
    _prepare_corpus(experiment)
    found = inspect_experiment(experiment, opening, show_progress)
    _print(found, sys.stdout.isatty())
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    for problem in found.problems:
        click.echo(f"problem: {problem}", err=True)
    warnings = _count(found.warnings, "warning")
    verdict = _count(found.problems, "problem") or "A run of this config can begin."
    click.echo(f"{verdict}{' ' if not found.problems else ', '}{warnings}" if warnings else verdict)
    return 2 if found.problems else 0


def _count(found: list[str], what: str) -> str:
    return f"{len(found)} {what}{'s' * (len(found) > 1)}" if found else ""


def _prepare_corpus(experiment: Experiment) -> None:
    folder = getattr(experiment.corpus, "folder", None)
    if folder is not None and not folder.exists():
        click.echo(f"The corpus in {folder} does not exist yet and is generated now, as a run would do.", err=True)
    prepare(experiment)


def _print(found: Inspection, on_terminal: bool) -> None:
    if not on_terminal:
        for heading, rows in found.facts.items():
            click.echo(heading)
            for name, value in rows:
                click.echo(f"  {name:<14} {value}")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    for heading, rows in found.facts.items():
        table = Table("", "", title=heading, title_justify="left", box=box.SIMPLE, show_header=False)
        for name, value in rows:
            table.add_row(name, value)
        Console().print(table)

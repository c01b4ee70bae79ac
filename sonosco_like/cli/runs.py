"""`sonosco runs` and `sonosco diff`: a table of runs with their scores, and the difference between two of them."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonosco_like.cli.options import import_modules, imports
from sonosco_like.errors import SonoscoError, UsageError, did_you_mean
from sonosco_like.redaction import mask_secrets
from sonosco_like.runs.run_folder import CONFIG

if TYPE_CHECKING:
    from sonosco_like.runs.run_table import RunSummary
    from sonosco_like.serialization import Document

_STYLES = {"running": "green", "finished": "", "interrupted": "yellow", "failed": "red"}
_PERIODS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_MEASURES_SHOWN = 3
_PATH = click.Path(path_type=Path, exists=True)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("runs"))
@click.option(
    "--sort",
    "key",
    default="started",
    show_default=True,
    help="Sort by started, name, state or a measure such as val_loss.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything about each run, as JSON.")
def runs(folder: Path, key: str, as_json: bool) -> None:
    """List runs with their state and their scores.

    FOLDER is `runs` if not given. The epoch 2/7 is the second of seven. The scores are the best and the last one of all
    validations.

    \b
    Examples:
      sonosco runs
      sonosco runs experiments --sort val_word_error_rate
      sonosco runs --json
    """
    from sonosco_like.runs.run_table import find_runs

    found = _sorted(find_runs(folder), key)
    if as_json:
        click.echo(json.dumps([run.as_json() for run in found], indent=2, ensure_ascii=False))
    elif not found:
        click.echo(f"There is no run in {folder}.")
    else:
        _print(found)


def _sorted(found: list[RunSummary], key: str) -> list[RunSummary]:
    """The runs sorted by a key; by a measure, the best value comes first."""
    if key == "started":
        return found
    if key in ("name", "state"):
        return sorted(found, key=lambda run: str(getattr(run, key)))
    measures = {name for run in found for name in run.best}
    if key not in measures:
        hint = did_you_mean(key, measures | {"started", "name", "state"}) or "."
        raise UsageError(f"No run can be sorted by {key!r}{hint}")
    lower = next(run.lower_is_better[key] for run in found if key in run.best)
    return sorted(found, key=lambda run: (run.best[key] if lower else -run.best[key]) if key in run.best else math.inf)


def _print(found: list[RunSummary]) -> None:
    measures = list(dict.fromkeys(name for run in found for name in run.last))
    shown = sorted(measures, key=lambda name: name == "val_loss")[:_MEASURES_SHOWN]
    header = ["run", "name", "state", "started", "age", "epoch", "step", *(f"{name} best / last" for name in shown)]
    rows = [_row(run, shown) for run in found]
    if sys.stdout.isatty():
        _rich_table(header, rows)
    else:
        _plain_table(header, rows)


def _row(run: RunSummary, measures: list[str]) -> list[str]:
    scores = [f"{_number(run.best.get(name))} / {_number(run.last.get(name))}" for name in measures]
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
    place = [_epoch(run), "" if run.step is None else str(run.step)]
    return [run.folder.name, run.name, run.state, started, _age(time.time() - run.active), *place, *scores]


def _epoch(run: RunSummary) -> str:
    """The epoch as the progress bar shows it: counted from 1, with the number of epochs."""
    if run.epoch is None:
        return ""
    return f"{run.epoch + 1}" if run.epochs is None else f"{run.epoch + 1}/{run.epochs}"


def _rich_table(header: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, box=box.SIMPLE)
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        state = _STYLES.get(row[2], "")
        table.add_row(*(Text(cell, style=state if place == 2 else "") for place, cell in enumerate(row)))
    Console().print(table)


def _plain_table(header: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[place]) for row in (header, *rows)) for place in range(len(header))]
    for row in (header, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _age(seconds: float) -> str:
    unit, length = next(((unit, length) for unit, length in _PERIODS if seconds >= length), ("s", 1))
    return f"{max(0, int(seconds / length))} {unit}"


@click.command()
@click.argument("a", type=_PATH)
@click.argument("b", type=_PATH)
@imports
def diff(a: Path, b: Path, modules: tuple[str, ...]) -> int:
    """Show what differs between two configs or runs.

    A and B are config files, run folders or checkpoints. The exit code is 0 if they are alike, else 1. A setting that a
    config leaves out is compared by its default; a config with classes of your own needs --import for that.

    \b
    Examples:
      sonosco diff configs/las.yaml configs/tds.yaml
      sonosco diff runs/first runs/second
      sonosco diff configs/las.yaml runs/las
    """
    import_modules(modules)
    from sonosco_like.serialization import diff as compare

    paths = _configuration(a), _configuration(b)
    found = compare(*(_with_defaults(*paths) or paths))
    for difference in found:
        click.echo(mask_secrets(str(difference)))
    if not found:
        click.echo("alike")
    return 1 if found else 0


def _configuration(path: Path) -> Path:
    """The config of a run folder; any other path itself."""
    return path / CONFIG if (path / CONFIG).is_file() else path


def _with_defaults(*configs: Path) -> list[Document] | None:
    """The configs with each default written out; None, and a line about it, if one of them cannot be built here."""
    if not all(config.is_file() for config in configs):
        return None
    from sonosco_like.serialization import Document
    from sonosco_like.training.checks import SIZES
    from sonosco_like.training.experiment import build_experiment, read_config

    try:
        whole = [Document.of(build_experiment(read_config(config))) for config in configs]
    except SonoscoError as error:
        reason = mask_secrets(str(error).partition("\n")[0])
        click.echo(f"Note: the files are compared as they are written, without defaults. {reason}", err=True)
        return None
    for size in (f"trainer.model.{name}" for name in SIZES):  # follows from the data where a config leaves it out
        given = [document.get(size) for document in whole]
        if None in given and any(given):
            for document in whole:
                document.set(size, max(filter(None, given)))
    return whole

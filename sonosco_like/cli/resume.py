"""`sonosco resume`: a run goes on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import click

from sonosco_like.cli.train import continue_run, import_modules, imports


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@imports
def resume(run_dir: Path, modules: tuple[str, ...]) -> int:
    """Continue a run from its newest complete checkpoint.

    \b
    Example:
      sonosco resume runs/2026-01-31_12-00-00_las-digits
    """
    import_modules(modules)
    from sonosco_like.training import open_run

    experiment, step = open_run(run_dir)
    return continue_run(experiment, step)

"""`sonosco resume`: a run goes on as if nothing had happened, or with what is allowed to change."""

from __future__ import annotations

from pathlib import Path

import click

from sonosco_like.cli.options import PATH, allow_write, device, import_modules, imports, overrides, with_device
from sonosco_like.cli.train import continue_run
from sonosco_like.errors import UsageError


@click.command()
@click.argument("run_dir")
@click.option("--run-dir", "into", type=PATH, help="Where a remote run is fetched to; runs/<its name> if not given.")
@overrides
@device
@imports
@allow_write
def resume(
    run_dir: str, into: Path | None, overrides: tuple[str, ...], device: str | None, modules: tuple[str, ...]
) -> int:
    """Continue a run from its newest complete checkpoint.

    What does not contradict what the run has learned may be set anew: epochs, learning rate, patience of callbacks,
    number of workers. The change is written to changes.yaml in the run folder. RUN_DIR may be the URL of a remote copy.

    \b
    Examples:
      sonosco resume runs/2026-01-31_12-00-00_las-digits
      sonosco resume runs/las --set trainer.epochs=20 --set trainer.optimizer.lr=0.0005
    """
    import_modules(modules)
    from sonosco_like.training import open_run
    from sonosco_like.training.remote import is_url

    if into is not None and not is_url(run_dir):
        raise UsageError(f"--run-dir says where a remote run is fetched to, but {run_dir} is no URL: leave it out.")
    return continue_run(*open_run(run_dir, with_device(overrides, device), into))

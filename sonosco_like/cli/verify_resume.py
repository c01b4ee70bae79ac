"""`sonosco verify-resume`: the user's own proof that a run can be killed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from sonosco_like.cli.train import imports, overrides


@click.command(name="verify-resume")
@click.option("--config", type=click.Path(path_type=Path), required=True, help="The experiment, as YAML.")
@click.option("--kills", default=3, show_default=True, help="How often the second run is killed with SIGKILL.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep both runs in this folder.")
@overrides
@imports
def verify_resume(
    config: Path, kills: int, keep: Path | None, overrides: tuple[str, ...], modules: tuple[str, ...]
) -> int:
    """Prove that a run of this config can be killed and resumed bit for bit.

    Trains once whole and once with kills -9 at drawn moments, then compares weights, optimizer, random generators,
    callbacks and metrics. Exit code 0 if not a bit differs, else 1.

    \b
    Example:
      sonosco verify-resume --config configs/smoke.yaml --kills 3
    """
    from sonosco_like.training.verification import verify_resume as verify

    with tempfile.TemporaryDirectory() as temporary:
        verdict = verify(config, keep or Path(temporary), kills, overrides, modules, click.echo)
    where = ", ".join(map(str, verdict.kills)) or "never: the run ended first"
    if verdict.is_exact:
        click.echo(f"EXACT: {verdict.steps} steps, killed after {where}; not a bit differs from the unbroken run.")
        return 0
    click.echo(f"NOT EXACT: killed after {where}; {len(verdict.differences)} differences, the first ones:")
    for line in verdict.differences[:10]:
        click.echo(f"  {line}")
    return 1

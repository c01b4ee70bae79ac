"""`sonosco verify-resume`: the user's own proof that a run can be killed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonosco_like.cli.options import PATH, config, imports, overrides

if TYPE_CHECKING:
    from sonosco_like.training.verification import Verdict

_MOST_SHOWN = 10


@click.command(name="verify-resume")
@config
@click.option(
    "--kills",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="How often the second run is killed with SIGKILL.",
)
@click.option("--keep", type=PATH, help="Keep both runs in this folder.")
@overrides
@imports
def verify_resume(
    config: Path, kills: int, keep: Path | None, overrides: tuple[str, ...], modules: tuple[str, ...]
) -> int:
    """Prove that a run can be killed and resumed bit for bit.

    Trains the config once whole and once with kills -9 at drawn moments, then compares weights, optimizer, random
    generators, callbacks and metrics, and the weights after every step. Exit code 0 if not a bit differs, else 1 and
    what differed first: which step, which measure, which tensor.

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
    click.echo(f"NOT EXACT: {verdict.steps} steps, killed after {where}.")
    _explain(verdict)
    return 1


def _explain(verdict: Verdict) -> None:
    """Say what differed first, and what that means."""
    if verdict.first is not None:
        click.echo(f"first difference at {verdict.first}")
        if verdict.first.before_any_kill:
            click.echo(
                "The runs differed before the first kill, so this is not about resuming: something in this config is "
                "not a function of its seed (another thread, the clock, os.urandom, the order of a set)."
            )
        else:
            click.echo("It came after a kill: something in this config has state that a checkpoint does not hold.")
    if verdict.differences:
        click.echo(f"{len(verdict.differences)} differences at the end, the first ones:")
    for line in verdict.differences[:_MOST_SHOWN]:
        click.echo(f"  {line}")

"""`sonosco verify-resume`: a proof of exact resume for the user's own config."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sonosco_like.cli.options import (
    PATH,
    Manifests,
    allow_write,
    config,
    import_modules,
    imports,
    manifests,
    overrides,
    read_with_own_data,
)

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
    help="The number of SIGKILLs of the second run.",
)
@click.option("--keep", type=PATH, help="Keep both runs in this folder; they are deleted if not given.")
@manifests
@overrides
@imports
@allow_write
def verify_resume(
    config: Path,
    kills: int,
    keep: Path | None,
    overrides: tuple[str, ...],
    modules: tuple[str, ...],
    **manifests: Path | tuple[Path, ...] | None,
) -> int:
    """Prove that a run can be killed and resumed bit for bit.

    Trains the config once without a break and once with kills (SIGKILL) at random moments. Then compares the weights
    after every step, and at the end weights, optimizer, random generators, callbacks and metrics. The exit code is 0 if
    not a bit differs; else it is 1, and the first difference is printed: its step, and the measure or tensor.

    \b
    Examples:
      sonosco verify-resume --config configs/smoke.yaml --kills 3
      sonosco verify-resume --config configs/smoke.yaml --train my/train.jsonl --val my/val.jsonl
    """
    from sonosco_like.training.verification import verify_resume as verify

    with tempfile.TemporaryDirectory() as temporary:
        folder = keep or Path(temporary)
        if any(manifests.values()):
            import_modules(modules)
            config, overrides = _with_own_data(config, overrides, manifests, folder), ()
        verdict = verify(config, folder, kills, overrides, modules, click.echo)
    done = len(verdict.kills)
    where = ", ".join(map(str, verdict.kills)) or "no step"
    if done < kills:
        where += f" ({done} of {kills} kills: the run ended before the others)"
    if verdict.is_exact and kills and not done:
        click.echo("NOT PROVED: the run ended before it could be killed. Give it more steps: --set trainer.epochs=...")
        return 1
    if verdict.is_exact:
        click.echo(f"EXACT: {verdict.steps} steps, killed after {where}; not a bit differs from the unbroken run.")
        return 0
    click.echo(f"NOT EXACT: {verdict.steps} steps, killed after {where}.")
    _explain(verdict)
    return 1


def _with_own_data(config: Path, overrides: tuple[str, ...], manifests: Manifests, folder: Path) -> Path:
    """Write the config with the user's data to a file, since `--set` could not keep what its loaders share."""
    from sonosco_like.serialization import dumps, replace_file

    experiment = read_with_own_data(config, overrides, manifests)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "own_data.yaml"
    replace_file(path, dumps(experiment, state=False).encode(), private=True)
    return path


def _explain(verdict: Verdict) -> None:
    """Print the first difference and its probable cause, then the differences at the end."""
    if verdict.first is not None:
        click.echo(f"first difference at {verdict.first}")
        if verdict.first.before_any_kill:
            click.echo(
                "The runs differed before the first kill, so resuming is not the cause: something in this config does "
                "not depend on the seed alone (another thread, the clock, os.urandom, the order of a set)."
            )
        else:
            click.echo(
                "The difference came after a kill: something in this config has state that checkpoints do not hold."
            )
    if verdict.differences:
        click.echo(f"{len(verdict.differences)} differences at the end, the first ones:")
    for line in verdict.differences[:_MOST_SHOWN]:
        click.echo(f"  {line}")

"""`sonosco diff`: what differs between two configs or runs."""

from __future__ import annotations

from pathlib import Path

import click

from sonosco_like.passwords import masked
from sonosco_like.run_folder import CONFIG

_PATH = click.Path(path_type=Path, exists=True)


@click.command()
@click.argument("a", type=_PATH)
@click.argument("b", type=_PATH)
def diff(a: Path, b: Path) -> int:
    """Show what differs between two configs or runs.

    A and B are config files, run folders or checkpoints. Exit code 0 if they are alike, else 1.

    \b
    Examples:
      sonosco diff configs/las.yaml configs/tds.yaml
      sonosco diff runs/first runs/second
    """
    from sonosco_like.serialization import diff as compare

    found = compare(_configuration(a), _configuration(b))
    for difference in found:
        click.echo(masked(str(difference)))
    if not found:
        click.echo("alike")
    return 1 if found else 0


def _configuration(path: Path) -> Path:
    """Of a run folder its config; of anything else itself."""
    return path / CONFIG if (path / CONFIG).is_file() else path

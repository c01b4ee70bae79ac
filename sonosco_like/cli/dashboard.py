"""`sonosco dashboard`: the Transcripts page without TensorBoard."""

from __future__ import annotations

from pathlib import Path

import click

from sonosco_like.cli.options import PATH


@click.command()
@click.argument("runs", type=PATH, default=Path("runs"))
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=6007, show_default=True, help="0 takes a free one.")
def dashboard(runs: Path, host: str, port: int) -> int:
    """Show the transcripts of runs in a browser.

    RUNS is a folder of runs, or one run, whose config has the callback TranscriptDashboard. The page is the one of
    TensorBoard's Transcripts tab, and follows a training. Ctrl-C or SIGTERM ends it with exit code 0.

    \b
    Examples:
      sonosco dashboard
      sonosco dashboard runs/las --port 8080
    """
    from sonosco_like.tensorboard_plugin.alone import serve_transcripts

    serve_transcripts(runs, host, port, lambda line: click.echo(line))
    return 0

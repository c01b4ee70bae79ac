"""`sonosco init`: a first config that fits the data and the machine."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.errors import UsageError

if TYPE_CHECKING:
    from sonosco_like.training.proposal import Proposal

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--train", type=_FILE, required=True, help="The manifest of the training data.")
@click.option("--val", type=_FILE, help="The manifest of the validation data, best of other speakers.")
@click.option(
    "--model",
    type=click.Choice(["conformer", "deepspeech2", "las", "tds"]),
    help="The kind of model; deepspeech2 if not given.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    help="How long a training may take on this machine.",
)
@click.option(
    "--labels",
    type=click.Choice(["auto", "characters", "pieces"]),
    default="auto",
    show_default=True,
    help="What the model writes: characters, or word pieces that are learned from the training texts.",
)
def init(folder: Path, train: Path, val: Path | None, **options: Any) -> None:
    """Write a config that fits your data and machine.

    It is DIR/config.yaml, and nothing is overwritten. The command looks at lengths, sample rates, speakers and
    characters of the data, and at the processors, the memory and the GPU. It trains a few batches to see how many
    epochs the time is enough for, and says why it chooses what it chooses.

    \b
    Examples:
      sonosco init mine --train corpus/train.jsonl --val corpus/val.jsonl
      sonosco init mine --train corpus/train.jsonl --val corpus/val.jsonl --model conformer --minutes 120
    """
    from sonosco_like.progress import show_progress
    from sonosco_like.training.first_config import write_first_config

    if val is None:
        raise UsageError(
            f"--val is missing: without recordings that the model does not learn from, its error rate cannot "
            f"be measured. Make train.jsonl and val.jsonl of one manifest with: "
            f"sonosco data split {train} corpus --by speaker"
        )
    proposal, concerns = write_first_config(folder, train, val, progress=show_progress, **options)
    _print(proposal, concerns)


def _print(proposal: Proposal, concerns: list[str]) -> None:
    survey, config = proposal.survey, proposal.folder / "config.yaml"
    click.echo("data")
    for name, data in (("train", survey.train), ("val", survey.val)):
        durations = data.durations
        click.echo(
            f"  {name:<10} {len(durations):,} utterances, {data.hours:.2f} h, {durations.min():.1f} to "
            f"{durations.max():.1f} s, {len(data.speakers):,} speakers"
        )
    writing = survey.writing
    click.echo(f"  {'words':<10} {writing.words.total():,}, {len(writing.words):,} different")
    frequent = "".join(each for each, _ in writing.characters.most_common())
    click.echo(f"  {'characters':<10} {len(frequent)}, most frequent first: {frequent!r}")
    click.echo(f"machine\n  {proposal.machine}\nchosen")
    for name, reason in {"model": proposal.model, **proposal.reasons}.items():
        click.echo(f"  {name:<10} {reason}")
    if concerns:
        click.echo("to look at")
        for concern in concerns:
            click.echo(f"  - {concern}")
    quoted = quote(str(config))
    click.echo(f"\nwritten: {config}. Its first lines say what to change first. Next:")
    click.echo(f"  sonosco check --config {quoted}")
    click.echo(f"  sonosco train --config {quoted} --run-dir {quote(str(proposal.folder / 'run'))}")

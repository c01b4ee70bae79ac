"""`sonosco data pieces`: learn word pieces from the texts of manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sonosco_like.cli.options import force

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("sources", nargs=-1, required=True, type=_FILE)
@click.option("--size", type=click.IntRange(1), required=True, help="The number of labels, with the four special ones.")
@click.option("--output", type=_FILE, required=True, help="The file to write the word pieces to.")
@click.option(
    "--kind",
    type=click.Choice(["bpe", "unigram"]),
    default="bpe",
    show_default=True,
    help="The method of SentencePiece: pairs of pieces are joined, or the most likely pieces are kept.",
)
@click.option(
    "--case",
    type=click.Choice(["lower", "upper", "keep"]),
    default="lower",
    show_default=True,
    help="The case of the texts, as `case` of the cleaner in the config.",
)
@force
def pieces(sources: tuple[Path, ...], size: int, output: Path, kind: Any, case: Any, force: bool) -> None:
    """Learn word pieces from the texts of manifests.

    The file holds the vocabulary of a SentencePieceTokenizer. Take the texts for training, not those for testing. Needs
    sentencepiece: pip install 'sonosco_like[bpe]'.

    \b
    Examples:
      sonosco data pieces corpus/train.jsonl --size 500 --output pieces.model
      sonosco data pieces a/train.jsonl b/train.jsonl --size 1000 --kind unigram --output pieces.model
    """
    from sonosco_like.data.text import TextCleaner
    from sonosco_like.data.tools.pieces import learn_pieces
    from sonosco_like.progress import show_progress
    from sonosco_like.serialization import quote_text

    learnt = learn_pieces(sources, output, size, kind, TextCleaner(case=case), force, show_progress)
    click.echo(f"{output}: {learnt.size} labels\n\nTo use them, write under `dataset:` in your config:")
    click.echo(f"  tokenizer: {{class: SentencePieceTokenizer, model: {quote_text(str(output))}}}")
    click.echo(f"  cleaner: {{case: {case}}}")
    click.echo(f"If the model has a `vocabulary_size`, it is {learnt.size}.")

"""`sonosco data pieces` and `sonosco data lm`: learn word pieces, or a word language model, from texts."""

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
    from sonosco_like.data.tools.text_models import learn_pieces
    from sonosco_like.progress import show_progress
    from sonosco_like.serialization import quote_text

    learnt = learn_pieces(sources, output, size, kind, TextCleaner(case=case), force, show_progress)
    click.echo(f"{output}: {learnt.size} labels\n\nTo use them, write under `dataset:` in your config:")
    click.echo(f"  tokenizer: {{class: SentencePieceTokenizer, model: {quote_text(str(output))}}}")
    click.echo(f"  cleaner: {{case: {case}}}")
    click.echo(f"If the model has a `vocabulary_size`, it is {learnt.size}.")


@click.command()
@click.argument("sources", nargs=-1, required=True, type=_FILE)
@click.option(
    "--order",
    type=click.IntRange(1, 6),
    default=3,
    show_default=True,
    help="The longest n-grams: 3 lets the next word depend on the two before it.",
)
@click.option("--output", type=_FILE, required=True, help="The ARPA file to write; packed if its name ends in .gz.")
@click.option(
    "--case",
    type=click.Choice(["lower", "upper", "keep"]),
    default="lower",
    show_default=True,
    help="The case of the words, as `case` of the cleaner in the config.",
)
@click.option("--closed", is_flag=True, help="Give words that are in no text no probability at all.")
@force
def lm(sources: tuple[Path, ...], order: int, output: Path, case: Any, closed: bool, force: bool) -> None:
    """Learn a word language model for the beam search.

    SOURCES are manifests, or text files (.txt) with one sentence in each line. Take the texts for training and more of
    the same kind, not those for testing. For a small vocabulary, such as digits or commands, use --order 1 --closed.

    \b
    Examples:
      sonosco data lm corpus/train.jsonl --order 3 --output lm.arpa
      sonosco data lm corpus/train.jsonl news.txt.gz --order 4 --output lm.arpa.gz
      sonosco data lm digits/train.jsonl --order 1 --closed --output words.arpa
    """
    from sonosco_like.data.text import TextCleaner
    from sonosco_like.data.tools.text_models import learn_language_model
    from sonosco_like.progress import show_progress

    learned = learn_language_model(sources, output, order, TextCleaner(case=case), closed, force, show_progress)
    counts = ", ".join(f"{count:,} of order {length}" for length, count in enumerate(learned.ngrams, 1))
    click.echo(f"{output}: {learned.words:,} words from {learned.texts:,} texts; n-grams: {counts}")
    if learned.assumed:
        orders = ", ".join(map(str, learned.assumed))
        click.echo(
            f"The texts are too few or too alike to estimate the discounts of order {orders}; default ones were used."
        )
    click.echo(f"\nTo find its weight: sonosco evaluate RUN --manifest VAL.jsonl --lm {output} --tune-lm")

"""The options that change how a trained model is decoded, for every command that uses one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sonosco_like.inference import DecoderSettings

_OWN = "that of the run's decoder"
_OPTIONS = (
    click.option(
        "--decode",
        "kind",
        type=click.Choice(["ctc", "attention"]),
        help="Which output to decode, of a model that has both; else the run's own decoder.",
    ),
    click.option(
        "--beam",
        type=click.IntRange(1),
        help=f"Beam search of this width.  [default: {_OWN}, else none; with other options of a beam search 16 for "
        "CTC, 8 for attention]",
    ),
    click.option(
        "--lm",
        "language_model",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A word n-gram language model, ARPA or KenLM.",
    ),
    click.option(
        "--lm-weight",
        "language_model_weight",
        type=float,
        help=f"Weight of the language model.  [default: {_OWN}, else 0.5]",
    ),
    click.option("--word-bonus", type=float, help=f"What each word adds to the score.  [default: {_OWN}, else 0]"),
    click.option("--hot-word", "hot_words", multiple=True, help="A word to listen for; can be given several times."),
    click.option(
        "--hot-word-bonus", type=float, help=f"What each hot word adds to the score.  [default: {_OWN}, else 5]"
    ),
    click.option(
        "--ctc-weight",
        type=click.FloatRange(0, 1),
        help=f"Share of CTC in an attention beam search.  [default: {_OWN}, else 0]",
    ),
)
_NAMES = (
    "kind", "beam", "language_model", "language_model_weight",
    "word_bonus", "hot_words", "hot_word_bonus", "ctc_weight",
)  # fmt: skip


def decoder_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command these options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_decoder_settings(options: dict[str, Any], n_best: int | None = None) -> DecoderSettings:
    """The settings among the options of a command, which are taken out of them."""
    from sonosco_like.inference import DecoderSettings

    return DecoderSettings(n_best=n_best, **{name: options.pop(name) for name in _NAMES})

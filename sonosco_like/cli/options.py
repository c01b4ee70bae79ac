"""The options that several commands share."""

from __future__ import annotations

import functools
import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.cli.own_data import SETS
from sonosco_like.errors import SonoscoError, UsageError
from sonosco_like.write_permissions import ALLOW_WRITE_VARIABLE, allow_writing_only_to

if TYPE_CHECKING:
    from sonosco_like.inference import DecoderSettings

PATH = click.Path(path_type=Path)
_RUNS = "that of the run's decoder"  # a default

config = click.option("--config", type=PATH, required=True, help="The YAML file of the experiment.")
imports = click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="A Python module with your own classes; can be given several times.",
)
overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a value of the config; the value is YAML: --set trainer.epochs=3, and in a list, counted from 0, "
    "--set 'trainer.callbacks[2].patience=5'; can be given several times.",
)
device = click.option(
    "--device",
    help="Such as cpu or cuda; the GPU, if there is one, if not given. With torchrun each process takes its own GPU.",
)
force = click.option("--force", is_flag=True, help="Overwrite files that exist.")
opening = click.option(
    "--open",
    "opening",
    type=click.Choice(["all", "sample", "none"]),
    default="sample",
    show_default=True,
    help="Which recordings to decode: all, a sample of one hour, or none; with none, headers are not read either.",
)


def with_device(overrides: tuple[str, ...], device: str | None) -> tuple[str, ...]:
    """The overrides with the device added to them."""
    return overrides if device is None else (*overrides, f"trainer.device={device}")


def allow_write(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --allow-write to a command; without it a config writes only to the run folder and the working directory."""

    @click.option(
        "--allow-write",
        "allowed",
        multiple=True,
        metavar="PLACE",
        help="A folder or URL outside the run folder and the working directory to which the config may write (remote, "
        f"corpus, tracking). Can be given several times, or in the environment variable {ALLOW_WRITE_VARIABLE}.",
    )
    @functools.wraps(command)
    def guarded(allowed: tuple[str, ...], **options: Any) -> Any:
        folders = [options[name] for name in ("run_dir", "into", "keep") if options.get(name) is not None]
        with allow_writing_only_to([".", *folders, *allowed]):
            return command(**options)

    return guarded


def manifests(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --train, --val and --test to a command, which put the user's own data into any config."""
    for name in reversed(SETS):
        text = f"Your own {name} manifest, instead of the one in the config."
        command = click.option(f"--{name}", f"{name}_manifest", type=PATH, help=text)(command)
    return command


def import_modules(modules: tuple[str, ...]) -> None:
    """Import the user's modules, also from the current folder, so that their classes are registered."""
    if modules and "" not in sys.path:
        sys.path.insert(0, "")
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever the user's own code raises
            reason = str(error) if isinstance(error, SonoscoError) else f"{type(error).__name__}: {error}."
            place = _place_of(error)
            where = f" ({place})" if place else ""
            raise UsageError(
                f"--import {module}{where}: {reason} `sonosco --debug ...` shows the traceback."
            ) from error


def _place_of(error: Exception) -> str:
    """File and line of the user's code at which an import failed; empty if none of that code ran."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}" if error.filename else ""
    ours = str(Path(__file__).parents[1])
    places = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, "<frozen", importlib.__file__))
    ]
    return places[-1] if places else ""


_DECODER_OPTIONS = (
    click.option(
        "--decode",
        "kind",
        type=click.Choice(["ctc", "attention"]),
        help="The output to decode, if the model has both; the run's own decoder if not given.",
    ),
    click.option(
        "--beam",
        type=click.IntRange(1),
        help=f"Width of the beam search.  [default: {_RUNS}, else no beam search; with other options of a beam search "
        "16 for CTC, 8 for attention]",
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
        help=f"Weight of the language model.  [default: {_RUNS}, else 0.5]",
    ),
    click.option("--word-bonus", type=float, help=f"What each word adds to the score.  [default: {_RUNS}, else 0]"),
    click.option("--hot-word", "hot_words", multiple=True, help="A word to prefer; can be given several times."),
    click.option(
        "--hot-word-bonus", type=float, help=f"What each hot word adds to the score.  [default: {_RUNS}, else 5]"
    ),
    click.option(
        "--ctc-weight",
        type=click.FloatRange(0, 1),
        help=f"Share of CTC in an attention beam search.  [default: {_RUNS}, else 0]",
    ),
)
DECODER_NAMES = (
    "kind", "beam", "language_model", "language_model_weight",
    "word_bonus", "hot_words", "hot_word_bonus", "ctc_weight",
)  # fmt: skip


def decoder_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of decoding to a command."""
    for option in reversed(_DECODER_OPTIONS):
        command = option(command)
    return command


def take_decoder_settings(options: dict[str, Any], n_best: int | None = None) -> DecoderSettings:
    """Remove the decoder options from the options of a command, and return them as settings."""
    from sonosco_like.inference import DecoderSettings

    return DecoderSettings(n_best=n_best, **{name: options.pop(name) for name in DECODER_NAMES})

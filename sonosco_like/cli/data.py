"""`sonosco data`: generate corpora, make manifests of public ones, work with manifests, and learn from their texts."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.cli.data_texts import lm, pieces
from sonosco_like.cli.options import force as _force
from sonosco_like.cli.options import opening

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sonosco_like.data.corpora.corpus import Corpus
    from sonosco_like.data.tools.stats import Statistics

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_PATH = click.Path(path_type=Path, exists=True)
_MOST_SUSPICIOUS = 20

_SOURCE_OR_WEB = "An archive, a folder of archives, or an unpacked folder; the corpus is downloaded if not given."
_SOURCE_ONLY = (
    "The archive from commonvoice.mozilla.org, or its unpacked folder; required, since nothing is downloaded."
)
_seed = click.option("--seed", default=0, show_default=True, help="The same seed gives the same result, bit for bit.")


@click.group()
def data() -> None:
    """Make and examine the data to train on.

    \b
    Examples:
      sonosco data synth corpus --minutes 30
      sonosco data stats corpus/train.jsonl --picture lengths.png
    """


data.add_command(lm)
data.add_command(pieces)


@data.command()
@click.argument("folder", type=_FOLDER)
@click.option(
    "--kind",
    type=click.Choice(["digits", "commands", "sentences"]),
    default="digits",
    show_default=True,
    help="The texts: 3 to 7 connected digits, commands to a smart home, or sentences from a few hundred words.",
)
@click.option(
    "--minutes", default=30.0, show_default=True, help="Length of all audio: 80 % train, 10 % val, 10 % test."
)
@_seed
@click.option("--variety", default=1.0, show_default=True, help="How much rooms and noise vary; 0 is a studio.")
@click.option(
    "--workers", type=int, help="Processes; one per processor if not given. Their number does not change the result."
)
@_force
def synth(folder: Path, **options: Any) -> None:
    """Generate a corpus of synthetic speech in FOLDER.

    It has many voices, speeds, rooms and microphones. Train, val and test share no voice and no text.

    \b
    Example:
      sonosco data synth corpus --kind digits --minutes 30 --seed 0
    """
    from sonosco_like.data.corpora.synth import synthesize
    from sonosco_like.progress import show_progress

    _print_manifests(synthesize(folder, progress=show_progress, **options))


def _corpus_options(command: Callable[..., None], source: str = _SOURCE_OR_WEB) -> Callable[..., None]:
    """Add the options of all public corpora to a command."""
    for option in (
        _force,
        _seed,
        click.option("--source", type=_PATH, help=source),
        click.argument("folder", type=_FOLDER),
    ):
        command = option(command)
    return command


@data.command()
@_corpus_options
def an4(folder: Path, **options: Any) -> None:
    """AN4: one hour of letters, digits and short answers.

    With the official test speakers; a tenth of the other speakers is for validation.

    \b
    Examples:
      sonosco data an4 corpus
      sonosco data an4 corpus --source an4_sphere.tar.gz
    """
    from sonosco_like.data.corpora.public import AN4

    _prepare(AN4(), folder, options)


@data.command()
@_corpus_options
@click.option("--part", "parts", multiple=True, help="A part such as train-clean-360; can be given several times.")
def librispeech(folder: Path, parts: tuple[str, ...], **options: Any) -> None:
    """LibriSpeech: up to 960 hours of read books.

    With the official splits. Without --part: train-clean-100, dev-clean and test-clean.

    \b
    Examples:
      sonosco data librispeech corpus --part train-clean-100 --part dev-clean --part test-clean
      sonosco data librispeech corpus --source LibriSpeech
    """
    from sonosco_like.data.corpora.public import DEFAULT_PARTS, LibriSpeech

    _prepare(LibriSpeech(parts or DEFAULT_PARTS), folder, options)


@data.command("common-voice")
@functools.partial(_corpus_options, source=_SOURCE_ONLY)
@click.option("--language", default="en", show_default=True, help="The code of the language in the corpus.")
def common_voice(folder: Path, language: str, **options: Any) -> None:
    """Common Voice: one language, read by volunteers.

    With the official splits, from an archive that you have downloaded from its site.

    \b
    Example:
      sonosco data common-voice corpus --source cv-corpus-17.0-2024-03-15-en.tar.gz
    """
    from sonosco_like.data.corpora.public import CommonVoice

    _prepare(CommonVoice(language), folder, options)


@data.command()
@_corpus_options
def tedlium(folder: Path, **options: Any) -> None:
    """TED-LIUM: talks, 452 hours in release 3.

    The talks are cut into segments, with the official splits.

    \b
    Examples:
      sonosco data tedlium corpus
      sonosco data tedlium corpus --source TEDLIUM_release-3.tgz
    """
    from sonosco_like.data.corpora.public import TEDLIUM

    _prepare(TEDLIUM(), folder, options)


@data.command()
@_corpus_options
@click.option("--submissions", type=int, help="How many archives to download; all if not given.")
def voxforge(folder: Path, submissions: int | None, **options: Any) -> None:
    """VoxForge: sentences read by volunteers.

    80 % of the speakers are in train, 10 % in val and 10 % in test.

    \b
    Examples:
      sonosco data voxforge corpus --submissions 500
      sonosco data voxforge corpus --source folder_of_tgz
    """
    from sonosco_like.data.corpora.public import VoxForge

    _prepare(VoxForge(submissions), folder, options)


@data.command()
@click.argument("folder", type=_FOLDER)
@click.option("--output", type=_FILE, help="The manifest to write; FOLDER/manifest.jsonl if not given.")
@click.option("--speaker", metavar="REGEX", help="The first group of the match in a path below FOLDER is the speaker.")
@_force
def manifest(folder: Path, output: Path | None, speaker: str | None, force: bool) -> None:
    """Make a manifest of the recordings in FOLDER.

    The texts come from a .txt file beside each recording, from LibriSpeech's .trans.txt, or from manifests in FOLDER.

    \b
    Examples:
      sonosco data manifest recordings
      sonosco data manifest recordings --speaker '^([^/]+)/' --output all.jsonl
    """
    from sonosco_like.data.tools.manifests import make_manifest
    from sonosco_like.progress import show_progress

    output = output or folder / "manifest.jsonl"
    found = make_manifest(folder, output, speaker, force, show_progress)
    click.echo(f"{output}: {found.rows} utterances, {_length(found.seconds)}")
    _print_left_out("without a text", [str(path) for path in found.without_text])
    _print_left_out("that cannot be read", found.unreadable)


@data.command()
@click.argument("sources", nargs=-1, required=True, type=_FILE)
@click.option("--output", type=_FILE, required=True, help="The manifest to write.")
@_force
def merge(sources: tuple[Path, ...], output: Path, force: bool) -> None:
    """Merge several manifests into one.

    A recording that is in several manifests is taken once.

    \b
    Example:
      sonosco data merge digits/train.jsonl commands/train.jsonl --output train.jsonl
    """
    from sonosco_like.data.tools.manifests import merge_manifests

    merged = merge_manifests(sources, output, force)
    click.echo(f"{output}: {merged.rows} utterances")
    if merged.duplicates:
        click.echo(f"{merged.duplicates} rows were left out, because an earlier row has the same audio.")
    if merged.renamed:
        click.echo(f"{merged.renamed} rows got a number after their id, because an earlier row has the same id.")


@data.command()
@click.argument("source", type=_FILE)
@click.argument("folder", type=_FOLDER)
@click.option(
    "--by",
    type=click.Choice(["speaker", "text", "both"]),
    default="speaker",
    show_default=True,
    help="What train, val and test must not share.",
)
@click.option(
    "--shares",
    nargs=3,
    type=float,
    default=(0.8, 0.1, 0.1),
    show_default=True,
    metavar="TRAIN VAL TEST",
    help="The share of the audio in each part.",
)
@_seed
@_force
def split(source: Path, folder: Path, by: Any, shares: tuple[float, float, float], seed: int, force: bool) -> None:
    """Split a manifest into train, val and test.

    Writes train.jsonl, val.jsonl and test.jsonl with the rows of SOURCE to FOLDER.

    \b
    Example:
      sonosco data split all.jsonl parts --by speaker --shares 0.8 0.1 0.1
    """
    from sonosco_like.data.tools.split import split_manifest

    parts = dict(zip(("train", "val", "test"), shares, strict=True))
    _print_manifests(split_manifest(source, folder, by, parts, seed, force))


@data.command()
@click.argument("source", type=_FILE)
@click.option("--picture", type=_FILE, help="Write a histogram of the lengths to this PNG file.")
@click.option(
    "--alphabet", metavar="CHARACTERS", help="Characters that have a label; a to z, ' and space if not given."
)
@click.option("--slowest", default=1.5, show_default=True, help="Characters per second below which a row is too slow.")
@click.option("--fastest", default=30.0, show_default=True, help="Characters per second above which a row is too fast.")
@opening
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@_force
def stats(
    source: Path,
    picture: Path | None,
    alphabet: str | None,
    slowest: float,
    fastest: float,
    opening: Any,
    as_json: bool,
    force: bool,
) -> None:
    """Print statistics of a manifest, and rows that look wrong.

    Lists every row whose recording is missing, unreadable, cut off, silent or of another length than the row says, and
    every row whose text has a character without a label, or is too long or too short for its audio.

    \b
    Examples:
      sonosco data stats corpus/train.jsonl --picture lengths.png
      sonosco data stats corpus/train.jsonl --open all --json
    """
    from sonosco_like.data.manifest import Manifest
    from sonosco_like.data.tools.files import claim_file
    from sonosco_like.data.tools.stats import Limits, draw_histogram, gather_statistics
    from sonosco_like.progress import show_progress

    if picture is not None:
        claim_file(picture, force)
    statistics = gather_statistics(Manifest.read(source), alphabet, Limits(slowest, fastest), show_progress, opening)
    if picture is not None:
        draw_histogram(statistics, source.name, picture)
    if as_json:
        _print_json(statistics)
    else:
        _print_statistics(statistics, source)


def _prepare(corpus: Corpus, folder: Path, options: dict[str, Any]) -> None:
    from sonosco_like.data.corpora.corpus import prepare_corpus
    from sonosco_like.progress import show_progress

    prepared = prepare_corpus(corpus, folder, progress=show_progress, **options)
    _print_manifests(prepared.manifests)
    if prepared.left_out:
        click.echo(f"Left out: {len(prepared.left_out)} utterances; the first: {prepared.left_out[0]}")


def _print_manifests(manifests: Mapping[str, Path]) -> None:
    from sonosco_like.data.manifest import Manifest

    for path in manifests.values():
        rows = Manifest.read(path)
        click.echo(f"{path}: {len(rows)} utterances, {_length(rows.durations.sum())}")


def _length(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds < 3600 else f"{seconds / 3600:.2f} hours"


def _print_left_out(reason: str, names: list[str]) -> None:
    if names:
        click.echo(f"Left out: {len(names)} recordings {reason}; the first: {names[0]}")


def _print_json(statistics: Statistics) -> None:
    import dataclasses
    import json

    click.echo(json.dumps(dataclasses.asdict(statistics), ensure_ascii=False, indent=2))


def _print_statistics(statistics: Statistics, source: Path) -> None:
    from rich.console import Console

    from sonosco_like.data.tools.stats import statistics_tables

    console = Console(soft_wrap=True, markup=False)
    for table in statistics_tables(statistics, str(source), _MOST_SUSPICIOUS):
        console.print(table)

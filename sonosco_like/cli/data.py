"""`sonosco data`: make corpora, bring public ones into manifests, and look after manifests.

Nothing heavy is imported before a command runs, so that help answers at once.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.cli.options import opening

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sonosco_like.data.corpora.corpus import Corpus
    from sonosco_like.data.tools.stats import Statistics

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_PATH = click.Path(path_type=Path, exists=True)
_MOST_SUSPICIOUS = 20

_SOURCE_OR_WEB = "An archive, a folder of archives, or an unpacked folder; else it is downloaded."
_SOURCE_ONLY = "The archive from commonvoice.mozilla.org, or its unpacked folder; needed, as nothing is downloaded."
_force = click.option("--force", is_flag=True, help="Write over what is there.")
_seed = click.option("--seed", default=0, show_default=True, help="The same seed gives the same result, bit for bit.")


@click.group()
def data() -> None:
    """Make and examine the data to train on.

    \b
    Examples:
      sonosco data synth corpus --minutes 30
      sonosco data stats corpus/train.jsonl --picture lengths.png
    """


@data.command()
@click.argument("folder", type=_FOLDER)
@click.option(
    "--kind",
    type=click.Choice(["digits", "commands", "sentences"]),
    default="digits",
    show_default=True,
    help="What is said: 3 to 7 connected digits, orders to a home, or sentences of a few hundred words.",
)
@click.option("--minutes", default=30.0, show_default=True, help="Length of train (80 %), val and test (10 % each).")
@_seed
@click.option("--variety", default=1.0, show_default=True, help="How much rooms and noise differ; 0 is a studio.")
@click.option("--workers", type=int, help="Processes; all processors if not given. Their number changes no bit.")
@_force
def synth(folder: Path, **options: Any) -> None:
    """Make a corpus of synthetic speech in FOLDER.

    Many voices, speeds, rooms and microphones; no voice and no text is in two of train, val and test.

    \b
    Example:
      sonosco data synth corpus --kind digits --minutes 30 --seed 0
    """
    from sonosco_like.data.corpora.synth import synthesize
    from sonosco_like.data.tools.progress import show_progress

    _print_manifests(synthesize(folder, progress=show_progress, **options))


def _corpus_options(command: Callable[..., None], source: str = _SOURCE_OR_WEB) -> Callable[..., None]:
    """The options of all public corpora."""
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

    The official test speakers, and a tenth of the others for validation.

    \b
    Examples:
      sonosco data an4 corpus
      sonosco data an4 corpus --source an4_sphere.tar.gz
    """
    from sonosco_like.data.corpora.an4 import AN4

    _prepare(AN4(), folder, options)


@data.command()
@_corpus_options
@click.option("--part", "parts", multiple=True, help="Such as train-clean-360; can be given several times.")
def librispeech(folder: Path, parts: tuple[str, ...], **options: Any) -> None:
    """LibriSpeech: up to 960 hours of read books.

    With the official splits. Without --part: train-clean-100, dev-clean and test-clean.

    \b
    Examples:
      sonosco data librispeech corpus --part train-clean-100 --part dev-clean --part test-clean
      sonosco data librispeech corpus --source LibriSpeech
    """
    from sonosco_like.data.corpora.librispeech import DEFAULT_PARTS, LibriSpeech

    _prepare(LibriSpeech(parts or DEFAULT_PARTS), folder, options)


@data.command("common-voice")
@functools.partial(_corpus_options, source=_SOURCE_ONLY)
@click.option("--language", default="en", show_default=True, help="The language's code in the corpus.")
def common_voice(folder: Path, language: str, **options: Any) -> None:
    """Common Voice: one language, read by volunteers.

    From an archive that you got from its site, with the official splits.

    \b
    Example:
      sonosco data common-voice corpus --source cv-corpus-17.0-2024-03-15-en.tar.gz
    """
    from sonosco_like.data.corpora.common_voice import CommonVoice

    _prepare(CommonVoice(language), folder, options)


@data.command()
@_corpus_options
def tedlium(folder: Path, **options: Any) -> None:
    """TED-LIUM: talks, 452 hours in release 3.

    Cut into segments, with the official splits.

    \b
    Examples:
      sonosco data tedlium corpus
      sonosco data tedlium corpus --source TEDLIUM_release-3.tgz
    """
    from sonosco_like.data.corpora.tedlium import TEDLIUM

    _prepare(TEDLIUM(), folder, options)


@data.command()
@_corpus_options
@click.option("--submissions", type=int, help="How many archives to download; all if not given.")
def voxforge(folder: Path, submissions: int | None, **options: Any) -> None:
    """VoxForge: sentences read by volunteers.

    Speakers are shared out: 80 % to train, 10 % to val and 10 % to test.

    \b
    Examples:
      sonosco data voxforge corpus --submissions 500
      sonosco data voxforge corpus --source folder_of_tgz
    """
    from sonosco_like.data.corpora.voxforge import VoxForge

    _prepare(VoxForge(submissions), folder, options)


@data.command()
@click.argument("folder", type=_FOLDER)
@click.option("--output", type=_FILE, help="Where to write it; FOLDER/manifest.jsonl if not given.")
@click.option("--speaker", metavar="REGEX", help="Its first group, in a recording's path below FOLDER, is the speaker.")
@_force
def manifest(folder: Path, output: Path | None, speaker: str | None, force: bool) -> None:
    """Make a manifest of the recordings in FOLDER.

    Texts come from a .txt beside each recording, from LibriSpeech's .trans.txt, or from manifests that FOLDER has.

    \b
    Examples:
      sonosco data manifest recordings
      sonosco data manifest recordings --speaker '^([^/]+)/' --output all.jsonl
    """
    from sonosco_like.data.tools.folder import make_manifest
    from sonosco_like.data.tools.progress import show_progress

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
    """Make one manifest of several.

    A recording that is in two of them is taken once.

    \b
    Example:
      sonosco data merge digits/train.jsonl commands/train.jsonl --output train.jsonl
    """
    from sonosco_like.data.tools.merge import merge_manifests

    merged = merge_manifests(sources, output, force)
    click.echo(f"{output}: {merged.rows} utterances")
    if merged.doubles:
        click.echo(f"{merged.doubles} rows were left out, because an earlier one has the same piece of audio.")
    if merged.renamed:
        click.echo(f"{merged.renamed} rows got a number behind their id, because an earlier one has the same.")


@data.command()
@click.argument("source", type=_FILE)
@click.argument("folder", type=_FOLDER)
@click.option(
    "--by",
    type=click.Choice(["speaker", "text", "both"]),
    default="speaker",
    show_default=True,
    help="What no two parts may share.",
)
@click.option(
    "--shares",
    nargs=3,
    type=float,
    default=(0.8, 0.1, 0.1),
    show_default=True,
    metavar="TRAIN VAL TEST",
    help="How much of the audio each part gets.",
)
@_seed
@_force
def split(source: Path, folder: Path, by: Any, shares: tuple[float, float, float], seed: int, force: bool) -> None:
    """Divide a manifest into train, val and test.

    SOURCE is divided into train.jsonl, val.jsonl and test.jsonl in FOLDER.

    \b
    Example:
      sonosco data split all.jsonl parts --by speaker --shares 0.8 0.1 0.1
    """
    from sonosco_like.data.tools.split import split_manifest

    parts = dict(zip(("train", "val", "test"), shares, strict=True))
    _print_manifests(split_manifest(source, folder, by, parts, seed, force))


@data.command()
@click.argument("source", type=_FILE)
@click.option("--picture", type=_FILE, help="Write the histogram of lengths as a PNG.")
@click.option(
    "--alphabet", metavar="CHARACTERS", help="Characters that have a label; a to z, ' and blank if not given."
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
    """Say how much is in a manifest, and what looks wrong.

    Every row whose recording is missing, unreadable, cut off, silent or not what the row says is listed, and every row
    with a character that has no label, that is too fast or too slow.

    \b
    Examples:
      sonosco data stats corpus/train.jsonl --picture lengths.png
      sonosco data stats corpus/train.jsonl --open all --json
    """
    from sonosco_like.data.manifest import Manifest
    from sonosco_like.data.tools.outputs import claim_file
    from sonosco_like.data.tools.picture import draw_histogram
    from sonosco_like.data.tools.progress import show_progress
    from sonosco_like.data.tools.stats import Limits, gather_statistics

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
    from sonosco_like.data.tools.progress import show_progress

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

    from sonosco_like.data.tools.tables import statistics_tables

    console = Console(soft_wrap=True)
    for table in statistics_tables(statistics, str(source), _MOST_SUSPICIOUS):
        console.print(table)

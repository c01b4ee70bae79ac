"""`sonosco transcribe`: text for each recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.cli.decoder_options import decoder_options, take_decoder_settings
from sonosco_like.cli.options import PATH, import_modules, imports
from sonosco_like.errors import UsageError

if TYPE_CHECKING:
    from sonosco_like.inference import Failure, Transcript
    from sonosco_like.inference.reading import Recording
    from sonosco_like.inference.transcriber import Part

_DONE, _SOME_FAILED = 0, 1


@click.command()
@click.argument("run", metavar="RUN_OR_CHECKPOINT", type=PATH)
@click.argument("audio", nargs=-1, required=True, metavar="AUDIO ...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per file and line: words, times, confidences.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["txt", "json", "srt", "vtt"]),
    default="txt",
    show_default=True,
    help="Text, JSON lines, or subtitles.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder for one file per recording, instead of printing.",
)
@click.option("--n-best", type=click.IntRange(1), help="So many readings of each piece, with scores; for JSON.")
@click.option(
    "--longest",
    type=float,
    help="Cut recordings into pieces of at most so many seconds.  [default: the `max_duration` of the training set, "
    "else 8]",
)
@click.option(
    "--overlap",
    type=float,
    help="Seconds that pieces have in common where nobody pauses; at most half a piece.  [default: 2, but at most a "
    "third of a piece]",
)
@decoder_options
@click.option("--device", help="Such as cpu or cuda:0; a GPU if there is one.")
@imports
def transcribe(
    run: Path,
    audio: tuple[str, ...],
    as_json: bool,
    form: str,
    output: Path | None,
    n_best: int | None,
    longest: float | None,
    overlap: float | None,
    device: str | None,
    modules: tuple[str, ...],
    **options: Any,
) -> int:
    """Write down what is said in recordings.

    AUDIO are files of any rate and length, folders, or - for standard input. Features, alphabet and decoder are those
    of the run. Of a run folder the best checkpoint is used, else the final one, else the newest. A file that cannot be
    read is named and passed over, and the exit code is 1.

    \b
    Examples:
      sonosco transcribe runs/digits call.wav
      sonosco transcribe runs/digits recordings/ --json > texts.jsonl
      sonosco transcribe runs/digits lecture.mp3 --format srt > lecture.srt
      sox call.gsm -t wav - | sonosco transcribe runs/digits -
    """
    form = "json" if as_json else form
    if n_best is not None and form != "json":
        raise UsageError("--n-best is shown in JSON only: add --json.")
    import_modules(modules)
    settings = take_decoder_settings(options, n_best)
    from sonosco_like.inference import load_transcriber
    from sonosco_like.inference.reading import recordings_of

    with recordings_of(audio) as recordings:
        if output is None and form in ("srt", "vtt") and len(recordings) > 1:
            raise UsageError(f"Subtitles of {len(recordings)} recordings need a folder: give --output FOLDER.")
        paths = output_paths(recordings, audio, output, form) if output is not None else None
        transcriber = load_transcriber(run, device, settings, longest, overlap)
        if paths is None and len(recordings) == 1:
            return _print_segments(transcriber.segments(recordings), form, n_best is not None)
        return _print_transcripts(transcriber.stream(recordings), form, n_best is not None, paths)


def output_paths(recordings: list[Recording], arguments: Sequence[str], folder: Path, form: str) -> dict[str, Path]:
    """Where the text of each recording goes: its own name with another suffix, in the subfolder it came from."""
    paths: dict[str, Path] = {}
    taken: dict[Path, str] = {}
    for recording in recordings:
        root = next((each for each in arguments if Path(each).is_dir() and recording.path.is_relative_to(each)), None)
        inside = recording.path.relative_to(root) if root else Path(recording.path.name)
        path = folder / inside.with_suffix(f".{form}")
        if path in taken:
            raise UsageError(f"{taken[path]} and {recording.name} would both be written to {path}.")
        taken[path] = recording.name
        paths[recording.name] = path
    return paths


def _print_segments(parts: Iterator[Part], form: str, readings: bool) -> int:
    """One recording, part by part: of a long one the beginning can be read while the rest is being heard."""
    from sonosco_like.inference.formats import TranscriptWriter

    writer: TranscriptWriter | None = None
    for part in parts:
        if part.failure is not None:
            click.echo(f"Error: {part.failure.reason}", err=True)
            return _SOME_FAILED
        if writer is None:
            writer = TranscriptWriter(form, part.name, readings)
            click.echo(writer.begin(), nl=False)
        click.echo(writer.add(part.segment) if part.segment is not None else writer.end(), nl=False)
    return _DONE


def _print_transcripts(
    found: Iterator[Transcript | Failure], form: str, readings: bool, paths: dict[str, Path] | None
) -> int:
    from sonosco_like.inference import Failure
    from sonosco_like.inference.formats import render

    done = failed = 0
    for each in found:
        if isinstance(each, Failure):
            failed += 1
            click.echo(f"Skipped: {each.reason}", err=True)
            continue
        done += 1
        if paths is not None:
            paths[each.name].parent.mkdir(parents=True, exist_ok=True)
            paths[each.name].write_text(render(each, form, readings), encoding="utf-8")
        elif form == "txt":
            click.echo(f"{each.name}: {each.text}")
        else:
            click.echo(render(each, form, readings), nl=False)
    if failed:
        click.echo(f"{failed} of {done + failed} recordings could not be transcribed.", err=True)
    return _SOME_FAILED if failed else _DONE

"""`sonosco transcribe`: the text of each recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.cli.options import PATH, decoder_options, import_modules, imports, take_decoder_settings
from sonosco_like.errors import UsageError

if TYPE_CHECKING:
    from sonosco_like.inference import Failure, Transcript
    from sonosco_like.inference.audio_stream import Recording
    from sonosco_like.inference.transcriber import StreamItem

_DONE, _SOME_FAILED = 0, 1


@click.command()
@click.argument("run", metavar="RUN_OR_CHECKPOINT", type=PATH)
@click.argument("audio", nargs=-1, required=True, metavar="AUDIO ...")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON per file, with words, times and confidences."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["txt", "json", "srt", "vtt"]),
    default="txt",
    show_default=True,
    help="The output: text, JSON lines, or subtitles.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write one file per recording to this folder, instead of printing.",
)
@click.option(
    "--n-best", type=click.IntRange(1), help="Add the N best hypotheses of each segment, with scores; needs JSON."
)
@click.option(
    "--longest",
    type=float,
    help="Cut recordings into pieces of at most this many seconds.  [default: the `max_duration` of the training set, "
    "else 8]",
)
@click.option(
    "--overlap",
    type=float,
    help="Seconds that two pieces share if there is no pause between them; at most half a piece.  [default: 2, but at "
    "most a third of a piece]",
)
@decoder_options
@click.option("--device", help="Such as cpu or cuda:0; the GPU, if there is one, if not given.")
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
    """Transcribe recordings.

    AUDIO are files of any sample rate and length, folders, or - for standard input. Features, alphabet and decoder are
    those of the run. A run folder stands for its best checkpoint, else its final one, else its newest one. A file that
    cannot be read is skipped with a message, and the exit code is then 1.

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
    from sonosco_like.inference.audio_stream import open_recordings

    with open_recordings(audio) as recordings:
        if output is None and form in ("srt", "vtt") and len(recordings) > 1:
            raise UsageError(f"Subtitles of {len(recordings)} recordings need a folder: give --output FOLDER.")
        paths = output_paths(recordings, audio, output, form) if output is not None else None
        transcriber = load_transcriber(run, device, settings, longest, overlap)
        if paths is None and len(recordings) == 1:
            return _print_segments(transcriber.segments(recordings), form, n_best is not None)
        return _print_transcripts(transcriber.stream(recordings), form, n_best is not None, paths)


def output_paths(recordings: list[Recording], arguments: Sequence[str], folder: Path, form: str) -> dict[str, Path]:
    """The output file of each recording: its own name with another suffix, in the same subfolder."""
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


def _print_segments(items: Iterator[StreamItem], form: str, n_best: bool) -> int:
    """Print the segments of one recording as soon as each is transcribed."""
    from sonosco_like.inference.transcript import TranscriptWriter

    writer: TranscriptWriter | None = None
    for item in items:
        if item.failure is not None:
            click.echo(f"Error: {item.failure.reason}", err=True)
            return _SOME_FAILED
        if writer is None:
            writer = TranscriptWriter(form, item.name, n_best)
            click.echo(writer.begin(), nl=False)
        click.echo(writer.add(item.segment) if item.segment is not None else writer.end(), nl=False)
    return _DONE


def _print_transcripts(
    found: Iterator[Transcript | Failure], form: str, n_best: bool, paths: dict[str, Path] | None
) -> int:
    from sonosco_like.inference import Failure
    from sonosco_like.inference.transcript import render

    done = failed = 0
    for each in found:
        if isinstance(each, Failure):
            failed += 1
            click.echo(f"Skipped: {each.reason}", err=True)
            continue
        done += 1
        if paths is not None:
            paths[each.name].parent.mkdir(parents=True, exist_ok=True)
            paths[each.name].write_text(render(each, form, n_best), encoding="utf-8")
        elif form == "txt":
            click.echo(f"{each.name}: {each.text}")
        else:
            click.echo(render(each, form, n_best), nl=False)
    if failed:
        click.echo(f"{failed} of {done + failed} recordings could not be transcribed.", err=True)
    return _SOME_FAILED if failed else _DONE

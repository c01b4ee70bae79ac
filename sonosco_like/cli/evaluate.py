"""`sonosco evaluate`: how good a trained recogniser is, and how sure that is."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.cli.decoder_options import decoder_options, take_decoder_settings
from sonosco_like.cli.options import PATH, import_modules, imports
from sonosco_like.errors import UsageError

if TYPE_CHECKING:
    from sonosco_like.evaluation import Evaluation, ModelEvaluator, Result
    from sonosco_like.inference import DecoderSettings

_FILE = click.Path(path_type=Path, dir_okay=False)
_DONE, _SOME_UNUSABLE = 0, 1


@click.command()
@click.argument("run", metavar="RUN_OR_CHECKPOINT", type=PATH)
@click.option("--manifest", type=PATH, required=True, help="The utterances to hear, with their texts.")
@click.option("--json", "json_path", type=_FILE, help="Write everything to this file, as JSON.")
@click.option("--html", "html_path", type=_FILE, help="Write a page to this file that explains itself.")
@click.option("--errors", "errors_path", type=_FILE, help="Write an error file as Kaldi and icefall do.")
@click.option(
    "--bootstraps", type=click.IntRange(0), default=1000, show_default=True, help="Resamples for the intervals."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The seed of the resamples.")
@click.option("--against", type=PATH, help="Another run, or the --json of one: is the difference real?")
@click.option("--worst", "most_worst", type=click.IntRange(0), default=5, show_default=True, help="Utterances to show.")
@click.option("--batch-seconds", type=float, default=120.0, show_default=True, help="Audio that is heard at once.")
@click.option("--workers", type=click.IntRange(0), default=0, show_default=True, help="Processes that read audio.")
@decoder_options
@click.option("--device", help="Such as cpu or cuda:0; a GPU if there is one.")
@imports
def evaluate(
    run: Path,
    manifest: Path,
    json_path: Path | None,
    html_path: Path | None,
    errors_path: Path | None,
    against: Path | None,
    most_worst: int,
    device: str | None,
    modules: tuple[str, ...],
    **options: Any,
) -> int:
    """Measure the error rates of a recogniser.

    Hears a manifest and compares with what was said: word, character and sentence error rates of the corpus, with
    intervals from a bootstrap over its utterances. An interval says how far luck with the corpus goes; where every
    utterance is equally wrong, or none is, there is none to see and it has no width.

    Exit code 1 if some utterances could not be read; they are named, and the others are evaluated.

    \b
    Examples:
      sonosco evaluate runs/digits --manifest corpus/test.jsonl
      sonosco evaluate runs/new --manifest test.jsonl --against runs/old --html new.html --json new.json
      sonosco evaluate runs/digits --manifest test.jsonl --beam 16 --lm words.arpa
    """
    import_modules(modules)
    settings = take_decoder_settings(options)
    from sonosco_like.data.tools.progress import show_progress
    from sonosco_like.evaluation import ModelEvaluator
    from sonosco_like.inference import load_transcriber

    others = _results_in(against) if against is not None and against.suffix == ".json" else None
    evaluator = ModelEvaluator(**options)
    transcriber = load_transcriber(run, device, settings)
    with _skipping_quietly():
        evaluation = evaluator.evaluate(transcriber, manifest, show_progress)
    comparison = None
    if against is not None:
        others = others if others is not None else _other(evaluator, against, manifest, device, settings)
        comparison = evaluation.against(others, str(against))
    title = f"{run} on {manifest}"
    _print(evaluation, title, most_worst, comparison)
    if json_path is not None:
        heard = {"checkpoint": str(transcriber.recogniser.source), "weights": transcriber.recogniser.weights}
        content = {**evaluation.as_dict(), "comparison": comparison.as_dict() if comparison else None, **heard}
        _write(json_path, json.dumps({**content, "manifest": str(manifest)}, ensure_ascii=False, indent=1))
    if html_path is not None:
        from sonosco_like.evaluation.page import page

        _write(html_path, page(evaluation, title, comparison))
    if errors_path is not None:
        from sonosco_like.evaluation.error_file import error_lines

        _write(errors_path, "\n".join(error_lines(evaluation)) + "\n")
    return _SOME_UNUSABLE if evaluation.unusable else _DONE


def _other(
    evaluator: ModelEvaluator, run: Path, manifest: Path, device: str | None, settings: DecoderSettings
) -> list[Result]:
    from sonosco_like.data.tools.progress import show_progress
    from sonosco_like.inference import load_transcriber

    transcriber = load_transcriber(run, device, settings)
    with _skipping_quietly():
        return list(evaluator.evaluate(transcriber, manifest, show_progress).results)


@contextmanager
def _skipping_quietly() -> Iterator[None]:
    """What the loader skips is named at the end, once, and not in the midst of the progress."""
    logger = logging.getLogger("sonosco_like.data.loader")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _results_in(path: Path) -> list[Result]:
    from sonosco_like.evaluation import results_of

    try:
        return results_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(f"--against {path}: {error}") from None


def _print(evaluation: Evaluation, title: str, most_worst: int, comparison: Any) -> None:
    from rich.console import Console
    from rich.text import Text

    from sonosco_like.evaluation.terminal import summary

    console = Console(highlight=False)
    for part in summary(evaluation, title, console.width, most_worst, comparison):
        console.print(part, soft_wrap=isinstance(part, (str, Text)))  # paths that are broken cannot be copied


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    click.echo(f"written: {path}")

"""`sonosco evaluate`: the error rates of a trained recogniser, with confidence intervals."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sonosco_like.cli.options import PATH, decoder_options, import_modules, imports, take_decoder_settings
from sonosco_like.errors import UsageError

if TYPE_CHECKING:
    from sonosco_like.evaluation import Evaluation, ModelEvaluator, Result
    from sonosco_like.inference import DecoderSettings

_FILE = click.Path(path_type=Path, dir_okay=False)
_DONE, _SOME_UNUSABLE = 0, 1


@click.command()
@click.argument("run", metavar="RUN_OR_CHECKPOINT", type=PATH)
@click.option("--manifest", type=PATH, required=True, help="The utterances to transcribe, with their texts.")
@click.option("--json", "json_path", type=_FILE, help="Write all results to this file, as JSON.")
@click.option("--html", "html_path", type=_FILE, help="Write a report with explanations to this file.")
@click.option("--errors", "errors_path", type=_FILE, help="Write an error file in the format of Kaldi and icefall.")
@click.option(
    "--bootstraps",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="Resamples for the confidence intervals.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The seed of the resamples.")
@click.option(
    "--against", type=PATH, help="Another run, or its --json file, to test whether the difference is significant."
)
@click.option(
    "--worst",
    "most_worst",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="How many of the worst utterances to show.",
)
@click.option("--batch-seconds", type=float, default=120.0, show_default=True, help="Seconds of audio in one batch.")
@click.option("--workers", type=click.IntRange(0), default=0, show_default=True, help="Processes that read audio.")
@decoder_options
@click.option("--device", help="Such as cpu or cuda:0; the GPU, if there is one, if not given.")
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

    Transcribes the utterances of a manifest and compares the result with their texts: word, character and sentence
    error rates, with confidence intervals from a bootstrap over the utterances. An interval shows how much the error
    rate depends on the choice of utterances; if all utterances have the same error rate, the interval has no width.

    The exit code is 1 if some utterances could not be read; they are listed, and the others are evaluated.

    \b
    Examples:
      sonosco evaluate runs/digits --manifest corpus/test.jsonl
      sonosco evaluate runs/new --manifest test.jsonl --against runs/old --html new.html --json new.json
      sonosco evaluate runs/digits --manifest test.jsonl --beam 16 --lm words.arpa
    """
    import_modules(modules)
    settings = take_decoder_settings(options)
    from sonosco_like.evaluation import ModelEvaluator
    from sonosco_like.inference import load_transcriber
    from sonosco_like.progress import show_progress

    others = _read_results(against) if against is not None and against.suffix == ".json" else None
    evaluator = ModelEvaluator(**options)
    transcriber = load_transcriber(run, device, settings)
    with _hide_skip_warnings():
        evaluation = evaluator.evaluate(transcriber, manifest, show_progress)
    comparison = None
    if against is not None:
        others = others if others is not None else _evaluate_other(evaluator, against, manifest, device, settings)
        comparison = evaluation.against(others, str(against))
    title = f"{run} on {manifest}"
    _print(evaluation, title, most_worst, comparison)
    if json_path is not None:
        source = {"checkpoint": str(transcriber.recogniser.source), "weights": transcriber.recogniser.weights}
        content = {**evaluation.as_dict(), "comparison": comparison.as_dict() if comparison else None, **source}
        _write(json_path, json.dumps({**content, "manifest": str(manifest)}, ensure_ascii=False, indent=1))
    if html_path is not None:
        from sonosco_like.evaluation.files import html_page

        _write(html_path, html_page(evaluation, title, comparison))
    if errors_path is not None:
        from sonosco_like.evaluation.files import error_lines

        _write(errors_path, "\n".join(error_lines(evaluation)) + "\n")
    return _SOME_UNUSABLE if evaluation.unusable else _DONE


def _evaluate_other(
    evaluator: ModelEvaluator, run: Path, manifest: Path, device: str | None, settings: DecoderSettings
) -> list[Result]:
    from sonosco_like.inference import load_transcriber
    from sonosco_like.progress import show_progress

    transcriber = load_transcriber(run, device, settings)
    with _hide_skip_warnings():
        return list(evaluator.evaluate(transcriber, manifest, show_progress).results)


@contextmanager
def _hide_skip_warnings() -> Iterator[None]:
    """Hide the loader's warnings of skipped utterances, since the summary lists them after the progress bar."""
    logger = logging.getLogger("sonosco_like.data.loader")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _read_results(path: Path) -> list[Result]:
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
        console.print(
            part, soft_wrap=isinstance(part, (str, Text))
        )  # a path that is broken over two lines cannot be copied


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    click.echo(f"written: {path}")

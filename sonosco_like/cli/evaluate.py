"""`sonosco evaluate`: the error rates of a recogniser, with confidence intervals."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sonosco_like.cli.options import (
    DECODER_NAMES,
    PATH,
    decoder_options,
    import_modules,
    imports,
    take_decoder_settings,
)
from sonosco_like.errors import StorageError, UsageError

if TYPE_CHECKING:
    from sonosco_like.data.tools.predictions import PredictedUtterance
    from sonosco_like.evaluation import Comparison, Evaluation, ModelEvaluator, Result, Tuning
    from sonosco_like.inference import DecoderSettings

_FILE = click.Path(path_type=Path, dir_okay=False)
_OF_RECOGNISERS = ("manifest", "batch_seconds", "workers", "device", "pred_text", "tune_lm", *DECODER_NAMES)
_DONE, _SOME_UNUSABLE = 0, 1


@click.command()
@click.argument("run", metavar="RUN_OR_CHECKPOINT_OR_PREDICTIONS", type=PATH)
@click.option("--manifest", type=PATH, help="The utterances to transcribe, with their texts; required for a run.")
@click.option(
    "--normalizer",
    default="training",
    show_default=True,
    metavar="[training|none|basic|english]",
    help="The form in which references and hypotheses are compared: as in the training, as they are, or after one of "
    "Whisper's normalizers, which need pip install 'sonosco_like[normalizers]'.",
)
@click.option("--column", help="Which predictions to evaluate, such as pred_text_b; the first ones if not given.")
@click.option("--json", type=_FILE, help="Write all results to this file, as JSON.")
@click.option("--html", type=_FILE, help="Write a report with explanations to this file.")
@click.option("--errors", type=_FILE, help="Write an error file in the format of Kaldi and icefall.")
@click.option("--pred-text", type=_FILE, help="Write the manifest with the hypotheses, as `pred_text`, to this file.")
@click.option("--force", is_flag=True, help="Let --pred-text overwrite a file that exists.")
@click.option(
    "--bootstraps",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="Resamples for the confidence intervals.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The seed of the resamples.")
@click.option(
    "--against",
    type=PATH,
    help="Another run, its --json file, or predictions, to test whether the difference is significant.",
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
@click.option(
    "--tune-lm",
    is_flag=True,
    help="First find the --lm-weight and the --word-bonus with the fewest errors on the manifest, a validation set.",
)
@click.option("--device", help="Such as cpu or cuda:0; the GPU, if there is one, if not given.")
@imports
def evaluate(
    run: Path,
    manifest: Path | None,
    normalizer: str,
    column: str | None,
    json: Path | None,
    html: Path | None,
    errors: Path | None,
    pred_text: Path | None,
    force: bool,
    against: Path | None,
    most_worst: int,
    tune_lm: bool,
    device: str | None,
    modules: tuple[str, ...],
    **options: Any,
) -> int:
    """Measure the error rates of a recogniser.

    Transcribes the utterances of a manifest and compares the result with their texts: word, character and sentence
    error rates, with confidence intervals from a bootstrap over the utterances. An interval shows how much the error
    rate depends on the choice of utterances; if all utterances have the same error rate, the interval has no width.

    Instead of a run, give a manifest with predictions, also those of other tools: JSON lines with `pred_text` beside
    `text`, or with several columns `pred_text_NAME`, which are compared with each other. No audio is needed then.

    The exit code is 1 if some utterances could not be read; they are listed, and the others are evaluated.

    \b
    Examples:
      sonosco evaluate runs/digits --manifest corpus/test.jsonl
      sonosco evaluate runs/new --manifest test.jsonl --against runs/old --html new.html --json new.json
      sonosco evaluate runs/digits --manifest test.jsonl --beam 16 --lm words.arpa
      sonosco evaluate runs/digits --manifest val.jsonl --lm words.arpa --tune-lm
      sonosco evaluate runs/digits --manifest test.jsonl --normalizer english --pred-text digits.jsonl
      sonosco evaluate other-tool.jsonl --normalizer english --against digits.jsonl
    """
    import_modules(modules)
    settings = take_decoder_settings(options)
    from sonosco_like.data.tools.predictions import is_manifest
    from sonosco_like.evaluation import ModelEvaluator, find_normalizer

    files = _Files(json, html, errors, pred_text)
    files.check(force, run, manifest, against)
    _refuse_comparison(tune_lm, against)
    evaluator = ModelEvaluator(normalizer=find_normalizer(normalizer), **options)
    others = _read_results(against, evaluator) if against is not None else None
    with _hide_skip_warnings():
        if is_manifest(run):
            _refuse_options_of_recognisers(run, against)
            subject = _evaluate_texts(evaluator, run, column)
        else:
            subject = _evaluate_run(evaluator, run, manifest, column, settings, device, tune_lm)
        if against is not None and others is None:
            others = _evaluate_others(subject, against, settings, device)
    comparison = subject.evaluation.against(others, str(against)) if others is not None else None
    _print(subject, most_worst, comparison)
    files.write(subject, comparison)
    return _SOME_UNUSABLE if subject.evaluation.unusable else _DONE


@dataclass(frozen=True)
class _Subject:
    """What was evaluated: a recogniser on a manifest, or one column of a manifest with predictions.

    `evaluator` is for those that are compared with it. `columns` are the evaluations of all columns.
    """

    evaluation: Evaluation
    evaluator: ModelEvaluator
    manifest: Path
    title: str
    source: Mapping[str, str]
    columns: Mapping[str, Evaluation] = field(default_factory=dict)
    tuning: Tuning | None = None

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """The comparisons with the other columns."""
        others = {name: each for name, each in self.columns.items() if each is not self.evaluation}
        return {name: self.evaluation.against(each.results, name) for name, each in others.items()}


def _evaluate_run(
    evaluator: ModelEvaluator,
    run: Path,
    manifest: Path | None,
    column: str | None,
    settings: DecoderSettings,
    device: str | None,
    tune_lm: bool,
) -> _Subject:
    from sonosco_like.evaluation import training_normalizer, tune_language_model
    from sonosco_like.inference import load_transcriber
    from sonosco_like.progress import show_progress

    if manifest is None:
        raise UsageError(f"Name the utterances on which {run} is to be evaluated: --manifest FILE.")
    if column is not None:
        raise UsageError(f"--column {column} needs a manifest with predictions; {run} is not one.")
    recogniser = load_transcriber(run, device, settings).recogniser
    tuning = tune_language_model(recogniser, evaluator, manifest, show_progress) if tune_lm else None
    if tuning is not None:
        recogniser.decoder = tuning.decoder
    evaluation = evaluator.evaluate(recogniser, manifest, show_progress)
    if evaluation.normalizer.rule is None:  # others are compared in the form of this run's training
        evaluator = replace(evaluator, normalizer=training_normalizer(recogniser.cleaner))
    source = {"checkpoint": str(recogniser.source), "weights": recogniser.weights}
    return _Subject(evaluation, evaluator, manifest, f"{run} on {manifest}", source, tuning=tuning)


def _evaluate_texts(evaluator: ModelEvaluator, manifest: Path, column: str | None) -> _Subject:
    from sonosco_like.data.tools.predictions import read_predictions

    rows = read_predictions(manifest)
    names = _columns(rows, manifest, column)
    columns = {name: evaluator.evaluate_texts(rows, name) for name in names}
    chosen = column or names[0]
    evaluation = columns[chosen]
    evaluator = replace(evaluator, normalizer=evaluation.normalizer)
    return _Subject(evaluation, evaluator, manifest, f"{chosen} of {manifest}", {"column": chosen}, columns)


def _evaluate_others(
    subject: _Subject, against: Path, settings: DecoderSettings, device: str | None
) -> Sequence[Result]:
    from sonosco_like.data.tools.predictions import is_manifest, read_predictions
    from sonosco_like.inference import load_transcriber
    from sonosco_like.progress import show_progress

    if is_manifest(against):
        rows = read_predictions(against)
        return subject.evaluator.evaluate_texts(rows, _columns(rows, against, None)[0]).results
    transcriber = load_transcriber(against, device, settings)
    return subject.evaluator.evaluate(transcriber, subject.manifest, show_progress).results


def _columns(rows: Sequence[PredictedUtterance], path: Path, wanted: str | None) -> list[str]:
    """The columns with predictions, of which one may be wanted."""
    from sonosco_like.data.tools.predictions import prediction_columns

    names = prediction_columns(rows)
    if not names:
        raise UsageError(
            f"{path} has no column `pred_text` or `pred_text_NAME`. To evaluate a recogniser on it: "
            f"sonosco evaluate RUN --manifest {path}"
        )
    if wanted is not None and wanted not in names:
        raise UsageError(f"{path} has no column {wanted!r}; it has {', '.join(names)}.")
    return names


def _refuse_options_of_recognisers(run: Path, against: Path | None) -> None:
    if against is not None and against.is_dir():
        return  # the options are for this run
    context = click.get_current_context()
    for parameter in context.command.params:
        is_given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if is_given and parameter.name in _OF_RECOGNISERS:
            raise UsageError(f"{parameter.opts[0]} is for a recogniser; {run} is a file, a manifest with predictions.")


def _refuse_comparison(tune_lm: bool, against: Path | None) -> None:
    if tune_lm and against is not None:
        raise UsageError(
            "--tune-lm does not go with --against: tune first, then compare with the weights that it finds."
        )


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


def _read_results(path: Path, evaluator: ModelEvaluator) -> Sequence[Result] | None:
    """The results in the --json file of an evaluation; None for everything else."""
    from sonosco_like.data.tools.predictions import is_manifest
    from sonosco_like.evaluation import Normalizer, results_of

    if path.suffix != ".json" or is_manifest(path):
        return None
    assert isinstance(evaluator.normalizer, Normalizer)
    try:
        return results_of(json.loads(path.read_text(encoding="utf-8")), evaluator.normalizer)
    except (OSError, ValueError) as error:
        raise UsageError(f"--against {path}: {error}") from None


def _print(subject: _Subject, most_worst: int, comparison: Comparison | None) -> None:
    from rich.console import Console
    from rich.text import Text

    from sonosco_like.evaluation.terminal import summary, tuning_summary

    console = Console(highlight=False, markup=False)
    comparisons = [*subject.comparisons.values(), *([comparison] if comparison else [])]
    for part in summary(subject.evaluation, subject.title, console.width, most_worst, comparisons, subject.columns):
        console.print(
            part, soft_wrap=isinstance(part, (str, Text))
        )  # a path that is broken over two lines cannot be copied
    if subject.tuning is not None:
        for part in tuning_summary(subject.tuning, str(subject.manifest)):
            console.print(part, soft_wrap=isinstance(part, Text))


@dataclass(frozen=True)
class _Files:
    """The files to write; those that are not named are None."""

    json: Path | None
    html: Path | None
    errors: Path | None
    pred_text: Path | None

    def check(self, force: bool, *inputs: Path | None) -> None:
        """Refuse, before the long work, files that cannot be written, and files that are read as well."""
        from sonosco_like.data.tools.files import check_writable, claim_file

        results = [path for path in (self.json, self.html, self.errors) if path is not None]
        taken = [path.resolve() for path in inputs if path is not None]
        for path in [*results, *([self.pred_text] if self.pred_text else [])]:
            if path.resolve() in taken:
                raise UsageError(f"{path} is read or written by another option too. Choose another name.")
            taken.append(path.resolve())
        for path in results:
            if not os.access(path, os.W_OK):  # a file such as /dev/stdout may be written in a folder that may not
                check_writable(path)
        if self.pred_text is not None:
            claim_file(self.pred_text, force)

    def write(self, subject: _Subject, comparison: Comparison | None) -> None:
        """Write all files, and say so."""
        from sonosco_like.data.tools.predictions import write_predictions
        from sonosco_like.evaluation.files import error_lines, html_page

        evaluation = subject.evaluation
        comparisons = [*subject.comparisons.values(), *([comparison] if comparison else [])]
        if self.json is not None:
            _write(self.json, json.dumps(_content(subject, comparison), ensure_ascii=False, indent=1))
        if self.html is not None:
            _write(self.html, html_page(evaluation, subject.title, comparisons, subject.columns))
        if self.errors is not None:
            _write(self.errors, "\n".join(error_lines(evaluation)) + "\n")
        if self.pred_text is not None:
            write_predictions(self.pred_text, subject.manifest, evaluation.predictions)
            click.echo(f"written: {self.pred_text}")


def _content(subject: _Subject, comparison: Comparison | None) -> dict[str, Any]:
    """The content of the JSON file."""
    content = {
        **subject.evaluation.as_dict(),
        "comparison": comparison.as_dict() if comparison else None,
        **subject.source,
        "manifest": str(subject.manifest),
    }
    if subject.columns:
        others = subject.comparisons
        content["columns"] = {
            name: {**each.rates(), "comparison": others[name].as_dict() if name in others else None}
            for name, each in subject.columns.items()
        }
    if subject.tuning is not None:
        content["tuning"] = subject.tuning.as_dicts()
    return content


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror or error}.") from None
    click.echo(f"written: {path}")

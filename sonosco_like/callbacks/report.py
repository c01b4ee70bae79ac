"""Reports of a run: a printed table of how good the model is on each data set, and a finished run on one HTML page."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rich.console import Console
from rich.table import Table

from sonosco_like.callbacks.destination import RunFile, config_text
from sonosco_like.callbacks.history import Curve, CurveCallback
from sonosco_like.callbacks.measures import TRAINING, families_of, family_and_set, format_value
from sonosco_like.callbacks.plots import best_of, history_figure, title_of
from sonosco_like.callbacks.speed import format_duration
from sonosco_like.edits import align_words, count_errors, words_of
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Every, Moment, TrainerContext
from sonosco_like.html_page import render_page
from sonosco_like.records import Prediction
from sonosco_like.runs.run_folder import ENVIRONMENT
from sonosco_like.serialization import serializable, state

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

DataSet = Literal["train", "val", "test"]


@serializable
class EvaluationReport(AbstractCallback):
    """Evaluates the model on data sets, prints a table, and logs the numbers as `report/<set>/<measure>`.

    Loss and metrics on each of `sets` are computed `every` so many epochs (null: never) and, with `at_end`, when
    the training ends. Several validation sets are `val_<name>` each. The first `examples` utterances of each set are
    printed with reference and hypothesis.
    """

    sets: list[DataSet] = field(default_factory=lambda: ["val"])
    every: int | str | None = "1ep"
    at_end: bool = True
    examples: int = 0
    reported_at: int = state(-1)

    def __post_init__(self) -> None:
        self._every = Every(self.every) if self.every is not None else None
        if self._every is not None and self._every.duration.unit != "ep":
            raise UsageError(f"`every` of EvaluationReport counts epochs, such as 2ep, got {self.every!r}.")
        if self.examples < 0 or not self.sets:
            raise UsageError("EvaluationReport needs one of the `sets` at least, and 0 or more `examples`.")

    def measures_needed(self) -> Iterable[str]:
        """None: the measures of the training are not read, so that the gradient norm need not be computed."""
        return ()

    def on_attach(self, moment: Moment) -> None:
        """Refuse data sets that the trainer does not have, and examples that nothing can decode."""
        missing = [name for name in self.sets if not _loaders(moment.context, name)]
        if missing:
            raise UsageError(f"The trainer has no `{missing[0]}_data_loader` to report on; leave it out of `sets`.")
        if self.examples and moment.context.decoder is None:
            raise UsageError("Examples are decoded: give the trainer a `decoder`, or set `examples: 0`.")

    def on_epoch_end(self, moment: Moment) -> None:
        """Report if it is time."""
        if moment.error is None and self._every is not None and self._every.after_epoch(moment.context):
            self._report(moment.context)

    def on_training_end(self, moment: Moment) -> None:
        """Report on the finished model, unless the last epoch did."""
        if self.at_end and self.reported_at != moment.context.global_step:
            self._report(moment.context)

    def _report(self, context: TrainerContext) -> None:
        self.reported_at = context.global_step
        loaders = {name: loader for each in self.sets for name, loader in _loaders(context, each).items()}
        found = {name: context.evaluate(loader) for name, loader in loaders.items()}
        examples = list(self._examples(context, loaders))
        if context.processes.is_first:
            console = Console()
            console.print(_table(found, f"After {context.global_step} batches"))
            for line in examples:
                console.print(line, markup=False, highlight=False)
        context.log({f"report/{name}/{key}": value for name, row in found.items() for key, value in row.items()})

    def _examples(self, context: TrainerContext, loaders: dict[str, Any]) -> Iterator[str]:
        for name, loader in loaders.items() if self.examples else ():
            for prediction in context.predict(loader)[: self.examples]:
                texts = f"  reference:  {prediction.reference}\n  hypothesis: {prediction.hypothesis}"
                yield f"{name} {prediction.id}\n{texts}"


def _loaders(context: TrainerContext, name: DataSet) -> dict[str, Any]:
    """The loader of a data set by its name in the table; all loaders if there are several validation sets."""
    found = getattr(context, f"{name}_data_loader")
    if isinstance(found, dict):
        return {f"{name}_{each}": loader for each, loader in found.items()}
    return {} if found is None else {name: found}


def _table(found: dict[str, dict[str, float]], title: str) -> Table:
    table = Table("", *found, title=title, title_justify="left")
    for measure in dict.fromkeys(key for row in found.values() for key in row):
        cells = (format_value(measure, row[measure]) if measure in row else "-" for row in found.values())
        table.add_row(measure, *cells)
    return table


_LOSS, _MOST_HEADLINES = "loss", 4


class MeasureRow(NamedTuple):
    """A measure on one set of data: its last and its best value, and the step of the best; empty without a best."""

    measure: str
    data: str
    last: str
    best: str = ""
    step: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a report: large `headlines`, a table of `measures`, other `values` and `texts` folded away."""

    title: str
    facts: Mapping[str, str]
    headlines: Sequence[MeasureRow] = ()
    measures: Sequence[MeasureRow] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    figure: Figure | None = None
    worst: Sequence[Prediction] = ()
    texts: Mapping[str, str | None] = field(default_factory=dict)
    seconds_in_callbacks: Mapping[str, float] = field(default_factory=dict)

    def html(self) -> str:
        """The whole page."""
        slowest = sorted(self.seconds_in_callbacks.items(), key=lambda item: -item[1])
        return render_page(
            "report.html",
            title=self.title,
            facts=self.facts,
            headlines=self.headlines,
            measures=self.measures,
            values=self.values,
            figure=_svg(self.figure) if self.figure is not None else None,
            worst=[{"id": each.id, "alignment": align_words(each.reference, each.hypothesis)} for each in self.worst],
            texts=self.texts,
            seconds_in_callbacks=[(name, f"{seconds:.2f}") for name, seconds in slowest],
        )


@serializable(version=3)
class RunReport(CurveCallback):
    """Writes an HTML page about the run when the training ends; it needs no other file and no network.

    The page has the best and the last value of each measure, all curves, the `worst` utterances of the last validation
    word by word (if a metric needs their hypotheses), the config, the environment and the time spent in callbacks.
    `write(context)` writes it at any moment.
    """

    path: str = "report.html"
    folder: Path = Path()
    ranks: list[int] | None = field(default_factory=lambda: [0])
    worst: int = 20
    worst_utterances: list[tuple[str, str, str]] = state([])

    def __post_init__(self) -> None:
        self.run_file = RunFile(self.path, self.folder)
        if self.worst < 0:
            raise UsageError(f"`worst` counts utterances and must not be negative, got {self.worst}.")
        self._validating = False

    def on_attach(self, moment: Moment) -> None:
        self.run_file.resolve(moment.context)  # a path that cannot be written is refused at the start
        self.share_curves(moment.context)

    def on_validation_start(self, moment: Moment) -> None:
        """Forget the utterances of the last validation."""
        self._validating, self.worst_utterances = True, []

    def on_prediction_end(self, moment: Moment) -> None:
        """Keep the worst utterances of the current validation."""
        texts = getattr(moment.result, "hypothesis_texts", None)
        if self._validating and texts is not None:
            batch = moment.result.batch
            found = [*self.worst_utterances, *zip(batch.ids, batch.texts, texts, strict=True)]
            wrong = [each for each in found if _word_errors(each)]
            self.worst_utterances = sorted(wrong, key=_word_errors, reverse=True)[: self.worst]

    def on_validation_end(self, moment: Moment) -> None:
        """Ignore predictions outside validations."""
        self._validating = False

    def on_training_end(self, moment: Moment) -> None:
        """Write the page."""
        reason = str(moment.error) if moment.error is not None else ""
        self.write(moment.context, ended=f"stopped: {reason}" if reason else "")

    def write(self, context: TrainerContext, ended: str = "") -> Path:
        """Write the page and return its path; `ended` is the reason why the training stopped early."""
        path = self.run_file.resolve(context)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._page(context, ended).html(), encoding="utf-8")
        return path

    def _page(self, context: TrainerContext, ended: str) -> Page:
        curves = self.curves.logged_curves()
        measures, values = _tables(curves, context)
        validated = [row for row in measures if row.data != TRAINING]
        metrics = [row for row in validated if row.measure != _LOSS]
        return Page(
            title=getattr(context.experiment, "name", type(context.model).__name__),
            facts=_facts(context, ended),
            headlines=(metrics or validated or measures)[:_MOST_HEADLINES],
            measures=measures,
            values=values,
            figure=history_figure(curves, context) if curves else None,
            worst=[Prediction(*each) for each in self.worst_utterances],
            texts={"Config": config_text(context), "Environment": _environment(context)},
            seconds_in_callbacks=dict(context.seconds_in_callbacks),
        )

    def remember_state(self) -> Callable[[], None]:
        """A function that restores the current curves and utterances."""
        restore_curves, utterances = super().remember_state(), list(self.worst_utterances)

        def restore() -> None:
            restore_curves()
            self.worst_utterances = utterances

        return restore

    @staticmethod
    def upgrade_state(version: int, state: dict[str, Any]) -> dict[str, Any]:
        """Until version 2 the worst utterances were called `heard`."""
        state = CurveCallback.upgrade_state(version, state) if version < 2 else state
        return {"worst_utterances" if name == "heard" else name: value for name, value in state.items()}


def _tables(curves: Mapping[str, Curve], context: TrainerContext) -> tuple[list[MeasureRow], dict[str, str]]:
    """The rows of what the trainer measures, and the last values of everything else that was logged."""
    families = [family for family in families_of(context) if family != "gradient_norm"]
    measures, values = [], {}
    for name, curve in curves.items():
        last, best = format_value(name, curve.values[-1]), best_of(name, curve, context)
        found = family_and_set(name, families)
        if found is None:
            values[name] = last
        else:
            best_texts = ("", "") if best is None else (format_value(name, best[1]), str(best[0]))
            measures.append((families.index(found[0]), MeasureRow(title_of(found[0]), found[1], last, *best_texts)))
    return [row for _, row in sorted(measures, key=itemgetter(0))], values


def _word_errors(utterance: tuple[str, str, str]) -> int:
    _, reference, hypothesis = utterance
    return count_errors(words_of(reference), words_of(hypothesis)).errors


def _facts(context: TrainerContext, ended: str) -> dict[str, str]:
    parameters = sum(parameter.numel() for parameter in context.model.parameters())
    facts = {
        "model": type(context.model).__name__,
        "parameters": f"{parameters:,}",
        "epochs": f"{context.epoch} of {context.epochs}",
        "steps": f"{context.global_step:,}",
        "time": format_duration(context.seconds),
    }
    return {**facts, "ended": ended} if ended else facts


def _svg(figure: Figure) -> Markup:
    from markupsafe import Markup
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.hashsalt": "sonosco_like"}):  # the same picture is the same text
        figure.savefig(text, format="svg", metadata={"Date": None})
    return Markup(text.getvalue()[text.getvalue().index("<svg") :])  # noqa: S704  matplotlib escapes its texts


def _environment(context: TrainerContext) -> str | None:
    if context.experiment is None:
        return None
    file = Path(context.experiment.folder) / ENVIRONMENT
    return file.read_text(encoding="utf-8") if file.exists() else None

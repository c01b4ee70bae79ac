"""A printed report of how good the model is on each data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from sonosco_like.callbacks.measures import format_value
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Every, Moment, TrainerContext
from sonosco_like.serialization import serializable, state

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

"""A finished run on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sonosco_like.callbacks.curves import KeepsCurves
from sonosco_like.callbacks.destinations.destination import WritesFiles
from sonosco_like.callbacks.naming import shown
from sonosco_like.callbacks.plots import best_of, history_figure
from sonosco_like.callbacks.report_page import Page, Row, Utterance
from sonosco_like.callbacks.run_config import config_text
from sonosco_like.callbacks.speed import clock
from sonosco_like.errors import UsageError
from sonosco_like.events import Moment
from sonosco_like.metrics import count_errors, words_of
from sonosco_like.serialization import serializable, state


@serializable
class RunReport(WritesFiles, KeepsCurves):
    """Writes an HTML page about the run when the training ends; it needs no other file and no network.

    The page has the best and the last value of each measure, all curves, the `worst` utterances of the last validation
    word by word (if a metric has them decoded), the config, the environment and the time spent in callbacks.
    """

    path: str = "report.html"
    worst: int = 20
    heard: list[tuple[str, str, str]] = state([])

    def __post_init__(self) -> None:
        WritesFiles.__post_init__(self)
        KeepsCurves.__post_init__(self)
        if self.worst < 0:
            raise UsageError(f"`worst` counts utterances and must not be negative, got {self.worst}.")
        self._validating = False

    def on_validation_start(self, moment: Moment) -> None:
        """Forget the utterances of the validation before."""
        self._validating, self.heard = True, []

    def on_prediction_end(self, moment: Moment) -> None:
        """Keep the worst utterances of the validation that is under way."""
        texts = getattr(moment.result, "hypothesis_texts", None)
        if self._validating and texts is not None:
            batch = moment.result.batch
            found = [*self.heard, *zip(batch.ids, batch.texts, texts, strict=True)]
            wrong = [each for each in found if _word_errors(each)]
            self.heard = sorted(wrong, key=_word_errors, reverse=True)[: self.worst]

    def on_validation_end(self, moment: Moment) -> None:
        """Other predictions than those of validations are not this callback's."""
        self._validating = False

    def on_training_end(self, moment: Moment) -> None:
        """Write the page."""
        self.write(moment.context)

    def write(self, context: Any) -> Path:
        """Write the page as of now; returns where it is."""
        path = self.place(context)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._page(context).html(), encoding="utf-8")
        return path

    def _page(self, context: Any) -> Page:
        return Page(
            title=getattr(context.experiment, "name", type(context.model).__name__),
            facts=_facts(context),
            measures=self._measures(context),
            figure=history_figure(self.curves, context) if self.curves else None,
            worst=[Utterance(*each) for each in self.heard],
            texts={"Config": config_text(context), "Environment": _environment(context)},
            seconds_in_callbacks=dict(context.seconds_in_callbacks),
        )

    def _measures(self, context: Any) -> list[Row]:
        rows = []
        for name, curve in self.curves.items():
            best = best_of(name, curve, context)
            last = shown(name, curve.values[-1])
            rows.append(Row(name, last, "" if best is None else shown(name, best[1]), "" if best is None else best[0]))
        return rows


def _word_errors(heard: tuple[str, str, str]) -> int:
    return count_errors(words_of(heard[1]), words_of(heard[2])).errors


def _facts(context: Any) -> dict[str, str]:
    parameters = sum(parameter.numel() for parameter in context.model.parameters())
    return {
        "model": type(context.model).__name__,
        "parameters": f"{parameters:,}",
        "epochs": f"{context.epoch} of {context.epochs}",
        "steps": f"{context.global_step:,}",
        "time": clock(context.seconds),
    }


def _environment(context: Any) -> str | None:
    if context.experiment is None:
        return None
    file = Path(context.experiment.folder) / "environment.yaml"
    return file.read_text(encoding="utf-8") if file.exists() else None

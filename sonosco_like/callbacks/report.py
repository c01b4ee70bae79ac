"""A finished run on one page."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Any

from sonosco_like.callbacks.curves import KeepsCurves
from sonosco_like.callbacks.destinations.destination import WritesFiles
from sonosco_like.callbacks.naming import TRAINING, families_of, family_and_set, shown
from sonosco_like.callbacks.plots import best_of, history_figure, title_of
from sonosco_like.callbacks.report_page import Page, Row, Utterance
from sonosco_like.callbacks.run_config import config_text
from sonosco_like.callbacks.speed import clock
from sonosco_like.errors import UsageError
from sonosco_like.events import Moment
from sonosco_like.metrics import count_errors, words_of
from sonosco_like.run_folder import ENVIRONMENT
from sonosco_like.serialization import serializable, state

_LOSS, _MOST_HEADLINES = "loss", 4


@serializable
class RunReport(WritesFiles, KeepsCurves):
    """Writes an HTML page about the run when the training ends; it needs no other file and no network.

    The page has the best and the last value of each measure, all curves, the `worst` utterances of the last validation
    word by word (if a metric has them decoded), the config, the environment and the time spent in callbacks.
    `write(context)` writes it at any moment.
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
        reason = str(moment.error) if moment.error is not None else ""
        self.write(moment.context, ended=f"stopped: {reason}" if reason else "")

    def write(self, context: Any, ended: str = "") -> Path:
        """Write the page as of now; returns where it is. `ended` is why the training did not go on."""
        path = self.place(context)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._page(context, ended).html(), encoding="utf-8")
        return path

    def _page(self, context: Any, ended: str) -> Page:
        measures, values = self._tables(context)
        judged = [row for row in measures if row.data != TRAINING]
        metrics = [row for row in judged if row.measure != _LOSS]
        return Page(
            title=getattr(context.experiment, "name", type(context.model).__name__),
            facts=_facts(context, ended),
            headlines=(metrics or judged or measures)[:_MOST_HEADLINES],
            measures=measures,
            values=values,
            figure=history_figure(self.curves, context) if self.curves else None,
            worst=[Utterance(*each) for each in self.heard],
            texts={"Config": config_text(context), "Environment": _environment(context)},
            seconds_in_callbacks=dict(context.seconds_in_callbacks),
        )

    def _tables(self, context: Any) -> tuple[list[Row], dict[str, str]]:
        """What the trainer measures, by measure and data, and everything else that was logged."""
        families = [family for family in families_of(context) if family != "gradient_norm"]
        measures, values = [], {}
        for name, curve in self.curves.items():
            last, best = shown(name, curve.values[-1]), best_of(name, curve, context)
            found = family_and_set(name, families)
            if found is None:
                values[name] = last
            else:
                judged = ("", "") if best is None else (shown(name, best[1]), str(best[0]))
                measures.append((families.index(found[0]), Row(title_of(found[0]), found[1], last, *judged)))
        return [row for _, row in sorted(measures, key=itemgetter(0))], values


def _word_errors(heard: tuple[str, str, str]) -> int:
    return count_errors(words_of(heard[1]), words_of(heard[2])).errors


def _facts(context: Any, ended: str) -> dict[str, str]:
    parameters = sum(parameter.numel() for parameter in context.model.parameters())
    facts = {
        "model": type(context.model).__name__,
        "parameters": f"{parameters:,}",
        "epochs": f"{context.epoch} of {context.epochs}",
        "steps": f"{context.global_step:,}",
        "time": clock(context.seconds),
    }
    return {**facts, "ended": ended} if ended else facts


def _environment(context: Any) -> str | None:
    if context.experiment is None:
        return None
    file = Path(context.experiment.folder) / ENVIRONMENT
    return file.read_text(encoding="utf-8") if file.exists() else None

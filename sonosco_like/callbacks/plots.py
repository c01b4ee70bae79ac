"""The history of a run as pictures."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sonosco_like.callbacks.destination import RunFile
from sonosco_like.callbacks.history import Curve, CurveCallback
from sonosco_like.callbacks.measures import (
    TRAINING,
    families_of,
    family_and_set,
    format_value,
    is_rate,
    lower_is_better,
    short_name,
)
from sonosco_like.errors import UsageError
from sonosco_like.events import Every, Moment, TrainerContext
from sonosco_like.runs.run_folder import PLOTS
from sonosco_like.serialization import serializable

if TYPE_CHECKING:  # matplotlib takes half a second to import, so only functions that draw import it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

_PANEL = (5.6, 3.4)  # inches
_FEW, _MANY = 40, 400  # points of a curve: few are marked one by one, many are a thin line
_FALLING, _STEEP = ("loss", "gradient_norm"), 5  # measures that begin high, and how high that must be for a log scale
_FEW_CURVES, _FLAT = (
    4,
    5,
)  # so few curves get a panel each if one is so many times higher than another
_MOST_PANELS, _MOST_IN_LEGEND = 24, 10
_GREY, _COLOURS = "#7a869a", ("#1f6feb", "#d1480f", "#1a7f37", "#8250df", "#bf8700", "#cf222e")


@serializable(version=2)
class HistoryPlots(CurveCallback):
    """Draws everything that is logged: one panel per measure, training and validation in it, the best value marked.

    The picture `history` in each of `formats` is drawn when the training ends or fails and, if `every` is given, every
    so often; `draw(context)` draws it at any moment. LogMeasures and similar callbacks decide what is logged.
    """

    path: str = PLOTS
    folder: Path = Path()
    ranks: list[int] | None = field(default_factory=lambda: [0])
    formats: list[Literal["png", "pdf", "svg"]] = field(default_factory=lambda: ["png"])
    every: int | str | None = None

    def __post_init__(self) -> None:
        self.run_file = RunFile(self.path, self.folder)
        self._every = Every(self.every) if self.every is not None else None

    def on_attach(self, moment: Moment) -> None:
        self.run_file.resolve(moment.context)  # a path that cannot be written is refused at the start
        self.share_curves(moment.context)

    def on_batch_end(self, moment: Moment) -> None:
        """Draw if it is time."""
        if self._every is not None and self._every.after_batch(moment.context):
            self.draw(moment.context)

    def on_epoch_end(self, moment: Moment) -> None:
        """Draw if it is time."""
        if self._every is not None and self._every.after_epoch(moment.context):
            self.draw(moment.context)

    def on_training_end(self, moment: Moment) -> None:
        """Draw the whole run."""
        self.draw(moment.context)

    def on_error(self, moment: Moment) -> None:
        """Draw the run up to its error."""
        if len(self.curves):
            self.draw(moment.context)

    def draw(self, context: TrainerContext) -> None:
        """Draw all values that were logged so far."""
        curves = self.curves.logged_curves()
        if not curves:
            logger.warning("HistoryPlots has nothing to draw: nothing was logged. LogMeasures logs the measures.")
            return
        folder = self.run_file.resolve(context)
        folder.mkdir(parents=True, exist_ok=True)
        figure = history_figure(curves, context)
        for form in self.formats:
            figure.savefig(folder / f"history.{form}", dpi=150)


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves that are compared with each other, by their names in the legend."""

    title: str
    curves: dict[str, tuple[str, Curve]]


def history_figure(curves: Mapping[str, Curve], context: TrainerContext) -> Figure:
    """All curves of a run, by their names as logged, on one page."""
    from matplotlib.figure import Figure

    found = panels_of(curves, context)
    panels = found[:_MOST_PANELS]
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    last_step = max(curve.steps[-1] for curve in curves.values())
    for panel, place in zip(panels, axes, strict=False):
        _draw(panel, place, context)
        place.set_xlim(0, max(1, last_step) * 1.02)
    for place in axes[len(panels) :]:
        place.set_axis_off()
    if len(found) > len(panels):
        figure.supxlabel(f"{len(found) - len(panels)} further panels are not drawn.", fontsize=8, color=_GREY)
    return figure


def panels_of(curves: Mapping[str, Curve], context: TrainerContext) -> list[Panel]:
    """The loss and the metrics first, each with all its sets of data; then all other values."""
    families = families_of(context)
    order = ["loss", *(name for name in families if name not in ("loss", "gradient_norm")), "gradient_norm"]
    panels: dict[str, Panel] = {name: Panel(name, {}) for name in order}
    for name, curve in curves.items():
        family, label = family_and_set(name, families) or _group(name, families)
        panels.setdefault(family, Panel(family, {})).curves[label] = (name, curve)
    return [part for panel in panels.values() if panel.curves for part in _split_by_scale(panel, families)]


def title_of(name: str) -> str:
    """The usual name of a measure: WER for `word_error_rate`, `gradient norm` for `gradient_norm`."""
    short = short_name(name)
    return short.upper() if short != name else name.replace("_", " ").replace("/", ": ")


def _group(name: str, families: list[str]) -> tuple[str, str]:
    """`memory/peak` and `memory/now` belong together, `report/test/loss` to the loss, `learning_rate` to itself."""
    group, mark, label = name.rpartition("/")
    if mark and label in families:
        return label, group.replace("/", " ")
    return (group, label) if mark else (name, "")


def _split_by_scale(panel: Panel, families: list[str]) -> list[Panel]:
    """The panel, or one for each of its curves if some are so much higher than others that those would be flat."""
    heights = [max(abs(curve.lowest[0]), abs(curve.highest[0])) for _, curve in panel.curves.values()]
    if panel.title in families or not 1 < len(heights) <= _FEW_CURVES or max(heights) < _FLAT * min(heights):
        return [panel]
    return [Panel(f"{panel.title}/{label}", {"": curve}) for label, curve in panel.curves.items()]


def _draw(panel: Panel, axes: Axes, context: TrainerContext) -> None:
    colours = iter(_COLOURS * len(panel.curves))
    for label, (name, curve) in sorted(panel.curves.items(), key=lambda item: item[0] != TRAINING):
        colour = _GREY if label == TRAINING and len(panel.curves) > 1 else next(colours)
        dot = "o" if len(curve) <= _FEW else None
        size = 6 if len(curve) == 1 else 3
        width = 0.7 if len(curve) > _MANY else 1.6
        axes.plot(curve.steps, curve.values, color=colour, label=label, linewidth=width, marker=dot, markersize=size)
        if label != TRAINING:
            _mark_best(name, curve, axes, colour, context)
    _style_axes(panel, axes)


def _mark_best(name: str, curve: Curve, axes: Axes, colour: str, context: TrainerContext) -> None:
    best = best_of(name, curve, context)
    if best is not None:
        step, value = best
        axes.plot([step], [value], "o", markersize=7, markerfacecolor="white", markeredgecolor=colour, zorder=3)
        axes.set_title(f"best {format_value(name, value)} at step {step}", loc="right", fontsize=8, color=colour)


def best_of(name: str, curve: Curve, context: TrainerContext) -> tuple[int, float] | None:
    """The step and value at which a curve was best; None if it is not known which direction is better."""
    try:
        value, step = curve.lowest if lower_is_better(name, context) else curve.highest
    except UsageError:
        return None
    return None if step < 0 else (step, value)


def _style_axes(panel: Panel, axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, PercentFormatter, ScalarFormatter

    axes.set_title(title_of(panel.title), loc="left", fontsize=10, fontweight="bold")
    axes.set_xlabel("step", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    axes.grid(True, color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if is_rate(panel.title):
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        axes.set_ylim(bottom=0.0)
    elif panel.title in _FALLING and _is_steep(panel):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())
    if not {"", TRAINING} >= panel.curves.keys() and len(panel.curves) <= _MOST_IN_LEGEND:
        axes.legend(fontsize=8, frameon=False)


def _is_steep(panel: Panel) -> bool:
    """Whether the curves begin so high that the rest would be flat."""
    lowest = min(curve.lowest[0] for _, curve in panel.curves.values())
    highest = max(curve.highest[0] for _, curve in panel.curves.values())
    return 0 < lowest < highest / _STEEP < math.inf

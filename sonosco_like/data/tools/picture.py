"""The histogram of durations as a picture."""

from __future__ import annotations

from pathlib import Path

from sonosco_like.data.tools.stats import Statistics


def draw_histogram(statistics: Statistics, title: str, path: Path) -> Path:
    """Write a PNG: how many utterances there are of each length, and how much of the audio they are."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    bins = statistics.histogram
    starts, widths = [each.start for each in bins], [each.end - each.start for each in bins]
    axes.bar(starts, [each.rows for each in bins], widths, align="edge", color="#4878a8", edgecolor="white")
    axes.set(
        title=f"{title}: {statistics.rows:,} utterances, {statistics.seconds / 3600:.2f} hours",
        xlabel="seconds",
        ylabel="utterances",
    )
    minutes = axes.twinx()
    middles = [(each.start + each.end) / 2 for each in bins]
    minutes.plot(middles, [each.seconds / 60 for each in bins], color="#c05020", marker="o", markersize=3)
    minutes.set_ylabel("minutes of audio", color="#c05020")
    minutes.set_ylim(bottom=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, format="png")
    return path

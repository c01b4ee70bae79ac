"""Draws the learning curves that `bench_learning.py` printed: `python benchmarks/plot_learning.py LOG PICTURE`.

make bench BENCH=learning | tee learning.log
python benchmarks/plot_learning.py learning.log docs/images/learning.png
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

TARGET = 5.0
_TITLE = re.compile(r"^(\w+), [\d.]+ minutes of speech, \d+ epochs$", re.MULTILINE)
_POINT = re.compile(r"^ +([\d.]+) CPU minutes +([\d.]+) % WER$", re.MULTILINE)

Curve = list[tuple[float, float]]


def read_curves(log: str) -> dict[str, Curve]:
    """CPU minutes and word error rate, in percent, at the validations of each config."""
    _, *parts = _TITLE.split(log)
    named = zip(parts[::2], parts[1::2], strict=True)
    return {name: [(float(minutes), float(wer)) for minutes, wer in _POINT.findall(said)] for name, said in named}


def draw(curves: dict[str, Curve], picture: Path) -> None:
    """One line for each config, named where it ends."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes: Any = figure.subplots()
    for name, curve in curves.items():
        minutes, rates = zip(*curve, strict=True)
        (line,) = axes.plot(minutes, rates, marker="o", markersize=3, linewidth=1.6)
        axes.annotate(
            f"{name} {rates[-1]:.1f} %", (minutes[-1], rates[-1]), (-8, -14), textcoords="offset points",
            color=line.get_color(),
        )  # fmt: skip
    axes.axhline(TARGET, color="grey", linestyle=":", linewidth=1)
    axes.set_yscale("log")
    axes.set_yticks([100, 50, 20, 10, 5, 2, 1], labels=["100", "50", "20", "10", "5", "2", "1"])
    axes.set_yticks([], minor=True)
    axes.set_xlim(0, 1.1 * max(curve[-1][0] for curve in curves.values()))
    axes.set_ylim(bottom=0.6 * min(curve[-1][1] for curve in curves.values()))
    axes.set_xlabel("CPU minutes of training, loader included")
    axes.set_ylabel("WER on unseen voices (%)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    draw(read_curves(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))

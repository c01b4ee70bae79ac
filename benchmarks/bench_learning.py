"""How many CPU minutes each shipped config needs to 5 % WER on the unseen voices of the synthetic corpus, and its end.

`python benchmarks/bench_learning.py [--config las ...] [--corpus DIR] [--minutes 2 --epochs 1]`. The config is trained
as `sonosco train` trains it, its callbacks too. Time is that of the processor in all processes, loader workers
included, from the start of the training to the end of a validation; making the corpus and building the model are not
counted. The target can only be seen at a validation, so the answer is late by up to an epoch. About ten minutes for
each config.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.configs import read_config
from benchmarks.results import Row, report
from sonosco_like import AbstractCallback, serializable
from sonosco_like.events import Moment

CONFIGS = ("las", "tds", "deepspeech2", "conformer")
psutil: Any = importlib.import_module("psutil")  # has no types
MEASURE, TARGET, GOAL = "val_word_error_rate", 5.0, 2.0


def cpu_seconds() -> float:
    """Of this process, of its children that have ended, and of those that are alive."""
    spent = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        spent += usage.ru_utime + usage.ru_stime
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:  # it ended just now: the next look finds it among those that have ended
            continue
        spent += times.user + times.system
    return spent


@serializable
class LearningCurve(AbstractCallback):
    """Notes CPU minutes and word error rate, in percent, at the end of every validation."""

    def __post_init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._start = 0.0

    def on_training_start(self, moment: Moment) -> None:
        """The clock starts."""
        self._start = cpu_seconds()

    def on_validation_end(self, moment: Moment) -> None:
        """A point of the curve."""
        minutes, wer = (cpu_seconds() - self._start) / 60, 100 * moment.context.performance_measures[MEASURE]
        self.points.append((minutes, wer))
        print(f"  {minutes:6.2f} CPU minutes  {wer:6.2f} % WER", flush=True)


def learn(name: str, corpus: Path, overrides: list[str]) -> list[tuple[float, float]]:
    """Train a config into a folder that is thrown away; its learning curve."""
    experiment, curve = read_config(name, corpus, *overrides), LearningCurve()
    experiment.trainer.add_callback(curve)
    experiment.corpus.prepare()
    print(f"{name}, {experiment.corpus.minutes:g} minutes of speech, {experiment.trainer.epochs} epochs", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        experiment.start(Path(folder) / "run")
    return curve.points


def report_curve(name: str, points: list[tuple[float, float]], as_shipped: bool) -> None:
    """When the target was reached, if it was, and where the training ended."""
    reached = next((minutes for minutes, wer in points if wer <= TARGET), "not reached")
    minutes, wer = points[-1]
    print(f"  {TARGET:g} % WER: {reached if isinstance(reached, str) else f'{reached:.2f} CPU minutes'}\n", flush=True)
    report(
        Row(f"{name}.yaml: CPU time to {TARGET:g} % WER", reached, unit="min"),
        Row(f"{name}.yaml: WER at the end, after {minutes:.1f} CPU minutes", wer, "unseen voices",
            GOAL if as_shipped else None, "%"),
    )  # fmt: skip


def main() -> None:
    """Train one config after the other; one that fails does not keep the others from it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", action="append", choices=CONFIGS, help="which to train; all, if none is named")
    parser.add_argument("--corpus", type=Path, help="a folder with the corpus, made there if it is not there yet")
    parser.add_argument("--minutes", type=float, help="of speech, instead of what the config says")
    parser.add_argument("--epochs", type=int, help="instead of what the config says")
    options = parser.parse_args()
    torch.set_num_threads(1)
    changes = {"corpus.minutes": options.minutes, "trainer.epochs": options.epochs}
    overrides = [f"{path}={value}" for path, value in changes.items() if value is not None]
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        corpus = options.corpus.resolve() if options.corpus else Path(temporary) / "corpus"
        for name in options.config or CONFIGS:
            try:
                report_curve(name, learn(name, corpus, overrides), as_shipped=not overrides)
            except Exception:
                traceback.print_exc()
                failed.append(name)
    if failed:
        sys.exit(f"these configs failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

"""What transcripts cost beside the time between two validations of configs/las.yaml, which validates after every epoch.

Trained is the real model on a tenth of the real corpus. What grows with the corpus is multiplied: the time of an epoch,
and that of the texts of all utterances. The 16 samples with audio and pictures cost the same however long an epoch is.
All times are of the processor, so that other work on the machine matters little.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.configs import read_config
from benchmarks.results import Row, report
from sonosco_like import AbstractCallback
from sonosco_like.callbacks import (
    LasTextComparisonCallback,
    TbTeacherForcingTextComparisonCallback,
    TbTextComparisonCallback,
    TensorBoardCallback,
    TranscriptDashboard,
)
from sonosco_like.events import Moment

CONFIG, SHARE, EPOCHS = "las", 10, 3
CANDIDATES: dict[str, Any] = {
    "TranscriptDashboard": TranscriptDashboard,
    "TbTextComparisonCallback": TbTextComparisonCallback,
    "TbTeacherForcingTextComparisonCallback": TbTeacherForcingTextComparisonCallback,
    "LasTextComparisonCallback, beam search": LasTextComparisonCallback,
}


class Clock(AbstractCallback):
    """Measures the time of training without that of validations."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = self._since = 0.0

    def on_epoch_start(self, moment: Moment) -> None:
        """Begin anew: the last epoch counts, the first is slower."""
        self.seconds, self._since = 0.0, time.process_time()

    def on_validation_start(self, moment: Moment) -> None:
        """What follows is not training."""
        self.seconds += time.process_time() - self._since

    def on_validation_end(self, moment: Moment) -> None:
        """Training goes on."""
        self._since = time.process_time()


def timed(kind: Any, spent: list[float]) -> Any:
    """The class of a callback, made to note how long each validation keeps it busy."""

    def hearing(name: str) -> Any:
        def hook(self: Any, moment: Moment) -> None:
            start = time.process_time()
            getattr(kind, name)(self, moment)
            spent[-1] += time.process_time() - start

        return hook

    def begin(self: Any, moment: Moment) -> None:
        spent.append(0.0)
        kind.on_validation_start(self, moment)

    hooks = {name: hearing(name) for name in ("on_prediction_end", "on_validation_end")}
    return type(kind.__name__, (kind,), {**hooks, "on_validation_start": begin})


def train(folder: Path, minutes: float, samples: int, name: str) -> tuple[float, list[float]]:
    """Seconds of an epoch, and those that a callback took in each validation."""
    experiment = read_config(CONFIG, folder, f"corpus.minutes={minutes}", f"trainer.epochs={EPOCHS}")
    experiment.corpus.prepare()
    spent: list[float] = []
    trainer, clock, callback = experiment.trainer, Clock(), timed(CANDIDATES[name], spent)(samples=samples)
    with tempfile.TemporaryDirectory() as run:
        trainer.set_callbacks([callback, TensorBoardCallback(folder=Path(run)), clock])
        trainer.start_training()
    return clock.seconds, spent


def main() -> None:
    """Print the share of each callback."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "corpus"
        minutes = read_config(CONFIG, folder).corpus.minutes / SHARE
        seconds, texts = train(folder, minutes, 0, "TranscriptDashboard")
        between = SHARE * seconds
        print(f"between two validations: {between:.1f} s ({SHARE} times an epoch of {minutes:g} minutes)")
        for name in CANDIDATES:
            _, spent = train(folder, minutes, 16, name)
            further = (SHARE - 1) * sum(texts) / len(texts) if name == "TranscriptDashboard" else 0.0
            first, later = spent[0] + further, sum(spent[1:]) / len(spent[1:]) + further
            print(
                f"{name:40}  first {1000 * first:7.1f} ms {100 * first / between:5.2f} %   "
                f"later {1000 * later:7.1f} ms {100 * later / between:5.2f} %"
            )
            for which, spent_once in (("first validation", first), ("later ones", later)):
                what = f"{name}, 16 samples with audio and pictures, {which}"
                report(Row(what, 100 * spent_once / between, "time between two validations", 2.0, "%"))


if __name__ == "__main__":
    main()

"""What transcripts cost beside the time between two validations of configs/las.yaml, which validates after every epoch.

Trained is the real model on a tenth of the real corpus. What grows with the corpus is multiplied: the time of an epoch,
and that of the texts of all utterances. The 16 samples with audio and pictures cost the same however long an epoch is.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from sonosco_like import AbstractCallback, loads
from sonosco_like.callbacks import (
    LasTextComparisonCallback,
    TbTeacherForcingTextComparisonCallback,
    TbTextComparisonCallback,
    TensorBoardCallback,
    TranscriptDashboard,
)
from sonosco_like.events import Moment

CONFIG = Path(__file__).parents[1] / "configs" / "las.yaml"
MINUTES, SHARE = 60, 10
EPOCHS = 3
CANDIDATES: dict[str, Any] = {
    "TranscriptDashboard": TranscriptDashboard,
    "TbTextComparisonCallback": TbTextComparisonCallback,
    "TbTeacherForcingTextComparisonCallback": TbTeacherForcingTextComparisonCallback,
    "LasTextComparisonCallback, beam search": LasTextComparisonCallback,
}


class Clock(AbstractCallback):
    """Measures the time that is spent in training batches."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds, self._validating = 0.0, 0.0
        self._epoch = self._validation = 0.0

    def on_epoch_start(self, moment: Moment) -> None:
        """Begin to measure."""
        self._epoch, self._validating = time.perf_counter(), 0.0

    def on_validation_start(self, moment: Moment) -> None:
        """What follows is not training."""
        self._validation = time.perf_counter()

    def on_validation_end(self, moment: Moment) -> None:
        """Training goes on."""
        self._validating += time.perf_counter() - self._validation

    def on_epoch_end(self, moment: Moment) -> None:
        """The time of the last epoch; the first is slower."""
        self.seconds = time.perf_counter() - self._epoch - self._validating


def train(folder: Path, samples: int, name: str) -> tuple[float, list[float]]:
    """Seconds of an epoch, and those that a callback took in each validation."""
    text = CONFIG.read_text().replace("data/digits", str(folder / "digits"))
    text = text.replace(f"minutes: {MINUTES}", f"minutes: {MINUTES / SHARE:g}").replace(
        "epochs: 8", f"epochs: {EPOCHS}"
    )
    experiment = loads(text)
    experiment.corpus.prepare()
    trainer, clock, spent = experiment.trainer, Clock(), [0.0]
    callback = CANDIDATES[name](samples=samples)
    total = ("epoch_end", lambda moment: spent.append(moment.context.seconds_in_callbacks[type(callback).__name__]))
    with tempfile.TemporaryDirectory() as run:
        trainer.set_callbacks([callback, TensorBoardCallback(folder=Path(run)), clock, total])
        trainer.start_training()
    return clock.seconds, [after - before for before, after in itertools.pairwise(spent)]


def main() -> None:
    """Print the share of each callback."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        seconds, texts = train(Path(folder), 0, "TranscriptDashboard")
        between = SHARE * seconds
        print(f"between two validations: {between:.1f} s ({SHARE} times an epoch of {MINUTES / SHARE:g} minutes)")
        for name in CANDIDATES:
            _, spent = train(Path(folder), 16, name)
            further = (SHARE - 1) * sum(texts) / len(texts) if name == "TranscriptDashboard" else 0.0
            first, later = spent[0] + further, sum(spent[1:]) / len(spent[1:]) + further
            print(
                f"{name:40}  first {1000 * first:7.1f} ms {100 * first / between:5.2f} %   "
                f"later {1000 * later:7.1f} ms {100 * later / between:5.2f} %"
            )


if __name__ == "__main__":
    main()

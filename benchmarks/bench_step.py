"""What a step costs through the trainer, against the bare PyTorch loop: same model, same data, CPU time, turn by turn.

Goals: 1.03x on a trivial model, with data from a list and from a DataLoader, also with callbacks that do nothing and
in a run folder; 1 microsecond for each callback that has nothing to do in a step; 1.03x on a small ASR step with ten
built-in callbacks.
"""

from __future__ import annotations

import copy
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Row, report, report_ratio
from benchmarks.timing import print_ratios, take_turns
from sonosco_like import AbstractCallback, ModelTrainer
from sonosco_like.callbacks import (
    CsvFile,
    EarlyStopping,
    EpochTimeEstimate,
    GradMonitor,
    HistoryRecorder,
    LogMeasures,
    LRMonitor,
    MetricsFile,
    SpeedMonitor,
    TensorBoardCallback,
)
from sonosco_like.losses import CTCLoss
from sonosco_like.optim import SGD
from sonosco_like.records import Batch, Output

STEPS = 1500
ASR_STEPS = 6


class Idle(AbstractCallback):
    """Listens to the end of the training only."""

    def on_training_end(self, moment: Any) -> None:
        """Nothing."""


class IdleAtBatchEnd(AbstractCallback):
    """Is called after every batch, does nothing, and says that it reads no measure."""

    def __call__(self, epoch: int, step: int, performance_measures: Any, context: Any) -> None:
        """Nothing."""

    def measures_needed(self) -> Iterable[str]:
        """None."""
        return ()


def bare_loop(model: nn.Module, loss: Callable[..., Any], data: Iterable[Any]) -> float:
    """CPU seconds of one epoch as everybody writes it. `loss` sees what the trainer's would see."""
    start = time.process_time()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for batch in data:
        inputs, targets = (batch, batch) if isinstance(batch, Batch) else batch
        value = loss(model(inputs), targets)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        value.item()
    return time.process_time() - start


def trained(model: nn.Module, loss: Any, data: Iterable[Any], *callbacks: Any, **options: Any) -> float:
    """CPU seconds of one epoch through the trainer, from the start of the training to its end."""
    clock: list[float] = []
    watch = [(event, lambda moment: clock.append(time.process_time())) for event in ("training_start", "training_end")]
    listening = [*callbacks, *watch]
    ModelTrainer(model, loss, 1, data, optimizer=SGD(lr=0.001), callbacks=listening, **options).start_training()
    return clock[1] - clock[0]


def trivial_task() -> tuple[nn.Module, nn.Module, DataLoader[Any]]:
    """Model, loss and data: Linear 8 to 8 on batches of 4 through a DataLoader."""
    torch.manual_seed(0)
    rows = torch.randn(4 * STEPS, 8)
    return nn.Linear(8, 8), nn.MSELoss(), DataLoader(TensorDataset(rows, rows), batch_size=4)


class FolderOfRun(AbstractCallback):
    """Has the trainer remember the last good batch before every batch, as it does in a run folder."""

    def on_training_start(self, moment: Any) -> None:
        """Arm the guard."""
        trainer = moment.context
        trainer.experiment = SimpleNamespace(interrupted=False)
        trainer.guard.arm()

    def on_training_end(self, moment: Any) -> None:
        """There is no run folder."""
        moment.context.experiment = None


class Deep(nn.Module):
    """500 linear layers of 2 numbers: 1,000 tensors of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(2, 2) for _ in range(500)))

    def forward(self, rows: Tensor) -> Tensor:
        """Through all layers."""
        output: Tensor = self.layers(rows)
        return output


def many_parameters() -> None:
    """What the trainer costs where the weights are many small tensors."""
    torch.manual_seed(0)
    rows = torch.randn(4, 2)
    model, loss, data = Deep(), nn.MSELoss(), 30 * [(rows, rows)]
    idle = [IdleAtBatchEnd() for _ in range(20)]
    seconds = take_turns(
        {
            "bare loop": lambda: bare_loop(copy.deepcopy(model), loss, data),
            "trainer": lambda: trained(copy.deepcopy(model), loss, data),
            "trainer, 20 idle callbacks at batch_end": lambda: trained(copy.deepcopy(model), loss, data, *idle),
        }
    )
    print("\n1,000 tensors of parameters, 30 steps (goal 1.03x)")
    print_ratios(seconds, "bare loop")
    report_ratio("step of 1,000 tensors", seconds, "trainer", "bare loop", goal=1.03)
    report_ratio("step of 1,000 tensors", seconds, "trainer, 20 idle callbacks at batch_end", "bare loop")


def trivial() -> None:
    """What the trainer and idle callbacks cost where a step itself costs next to nothing."""
    model, loss, loader = trivial_task()
    trivial_from("DataLoader", model, loss, loader)
    trivial_from("list", model, loss, list(loader))


def trivial_from(source: str, model: nn.Module, loss: nn.Module, data: Iterable[Any]) -> None:
    """The same with data from one kind of source."""
    idle = [Idle() for _ in range(100)]
    at_batch_end = [IdleAtBatchEnd() for _ in range(20)]
    seconds = take_turns(
        {
            "bare loop": lambda: bare_loop(copy.deepcopy(model), loss, data),
            "trainer": lambda: trained(copy.deepcopy(model), loss, data),
            "trainer, 100 idle callbacks": lambda: trained(copy.deepcopy(model), loss, data, *idle),
            "trainer, 20 idle callbacks at batch_end": lambda: trained(copy.deepcopy(model), loss, data, *at_batch_end),
            "trainer, in a run folder": lambda: trained(copy.deepcopy(model), loss, data, FolderOfRun()),
            "trainer, in a run folder, 20 idle callbacks at batch_end": lambda: trained(
                copy.deepcopy(model), loss, data, FolderOfRun(), *at_batch_end
            ),
            "trainer, never waiting": lambda: trained(copy.deepcopy(model), loss, data, non_finite="ignore"),
        }
    )
    print(f"\nLinear 8 -> 8, batch 4, {STEPS} steps, {source} (goal 1.03x)")
    print_ratios(seconds, "bare loop")
    more = seconds["trainer, 100 idle callbacks"] - seconds["trainer"]
    idle_microseconds = 1e6 * more / 100 / STEPS
    print(f"an idle callback and step: {idle_microseconds:.3f} us (goal 1)")
    what = f"step of Linear 8 to 8, {source}"
    report_ratio(what, seconds, "trainer", "bare loop", goal=1.03)
    folder = "in a run folder"
    for case in ("20 idle callbacks at batch_end", folder, f"{folder}, 20 idle callbacks at batch_end"):
        report_ratio(what, seconds, f"trainer, {case}", "bare loop", goal=1.03)
    report_ratio(what, seconds, "trainer, never waiting", "bare loop")
    value = idle_microseconds if idle_microseconds > 0 else "lost in the noise"  # which meets no goal
    report(Row(f"an idle callback, each step, {source}", value, "trainer without it", goal=1.0, unit="µs"))


class Recurrent(nn.Module):
    """Two bidirectional LSTM layers and a CTC output."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(40, 256, num_layers=2, bidirectional=True, batch_first=True)
        self.output = nn.Linear(512, 32)

    def forward(self, batch: Batch) -> Output:
        """Features to logits, one for each frame."""
        encoded_BSD: Tensor = self.layers(batch.features_BTF)[0]
        return Output(encoded_BSD, batch.feature_lengths_B, ctc_logits_BSV=self.output(encoded_BSD))


def speech() -> None:
    """A 2-layer BiLSTM of 256 on 8 utterances of 4 seconds, CTC, with ten callbacks."""
    torch.manual_seed(0)
    labels, lengths = torch.randint(4, 32, (8, 40)), torch.full((8,), 40)
    names = [f"u{number}" for number in range(8)]
    batch = Batch(torch.randn(8, 400, 40), torch.full((8,), 400), labels, lengths, names, names, 8 * [4.0])
    data = ASR_STEPS * [batch]
    model, loss = Recurrent(), CTCLoss()
    with tempfile.TemporaryDirectory() as folder:

        def with_callbacks() -> float:
            place = Path(tempfile.mkdtemp(dir=folder))
            return trained(copy.deepcopy(model), loss, data, *ten_callbacks(place))

        seconds = take_turns(
            {
                "bare loop": lambda: bare_loop(copy.deepcopy(model), loss, data),
                "trainer": lambda: trained(copy.deepcopy(model), loss, data),
                "trainer, ten callbacks": with_callbacks,
            }
        )
    print(f"\nBiLSTM 2 x 256, batch 8 x 4 s, CTC, {ASR_STEPS} steps (goal 1.03x)")
    print_ratios(seconds, "bare loop")
    report_ratio("step of BiLSTM 2 x 256, CTC", seconds, "trainer", "bare loop")
    report_ratio("step of BiLSTM 2 x 256, CTC", seconds, "trainer, ten callbacks", "bare loop", goal=1.03)


def ten_callbacks(folder: Path) -> list[AbstractCallback]:
    """What a user has on by default, and more."""
    return [
        LogMeasures(every="1ba"), LRMonitor(), SpeedMonitor(), EpochTimeEstimate(), HistoryRecorder(),
        EarlyStopping(monitor="loss"), GradMonitor(), MetricsFile(folder=folder), CsvFile(folder=folder),
        TensorBoardCallback(folder=folder),
    ]  # fmt: skip


if __name__ == "__main__":
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    trivial()
    many_parameters()
    speech()

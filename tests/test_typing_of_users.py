"""A project of a user, outside this one, is checked against our types as they are installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from trained_runs import make_once, shared_folder

RIGHT = """
from sonosco_like import AbstractCallback, ModelTrainer, serializable, state


@serializable
class Count(AbstractCallback):
    every: int = 10
    seen: int = state(0)


def train(trainer: ModelTrainer) -> int:
    trainer.add_callback(Count(every=3))
    trainer.start_training()
    return trainer.global_step
"""
WRONG = """
from right import Count

Count(every="three")
"""

OWN_PARTS = """
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from sonosco_like import AbstractCallback, Event, ModelTrainer, Stop, serializable, state
from sonosco_like.events import Moment, TrainerContext
from sonosco_like.metrics import DecodedBatch, Sums, metric
from sonosco_like.optim import SGD


@serializable
class Net(nn.Module):
    size: int = 4

    def __post_init__(self) -> None:
        self.layer = nn.Linear(self.size, self.size)

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.layer(inputs)
        return output


@metric(lower_is_better=True, over="examples")
def distance(decoded: DecodedBatch) -> Sums:
    return Sums(float(len(decoded.hypotheses)), 4)


@serializable
class Watch(AbstractCallback):
    limit: float = 1.0
    seen: int = state(0)

    def __call__(
        self, epoch: int, step: int, performance_measures: Mapping[str, float], context: TrainerContext
    ) -> None:
        self.seen += 1
        context.log({"rate": context.optimizer.param_groups[0]["lr"], "step": context.global_step})
        if performance_measures["loss"] > self.limit:
            context.stop_training("too far")

    def on_epoch_end(self, moment: Moment) -> None:
        if moment.context.epochs == 3 and moment.event == Event.EPOCH_END:
            raise Stop("enough")


class AsBefore(AbstractCallback):
    def __call__(self, epoch: int, step: int, performance_measures: Mapping[str, float], context: Any) -> None:
        print(context.model, context.whatever)


def use(context: TrainerContext) -> None:
    print(context.epoch)


def train(data: list[tuple[Tensor, Tensor]]) -> None:
    trainer = ModelTrainer(
        Net(), nn.MSELoss(), 2, data, optimizer=SGD(lr=0.1), metrics=[distance], callbacks=[Watch(), AsBefore()]
    )
    use(trainer)
    trainer.start_training()
"""
MISSPELT = """
from sonosco_like import AbstractCallback
from sonosco_like.events import Moment


class Wrong(AbstractCallback):
    def on_batch_end(self, moment: Moment) -> None:
        print(moment.context.global_steps)

    def on_epoch_end(self, moment: Moment) -> None:
        moment.context.stop_training(3)
        print(moment.contxt)
"""


FILES = {"right.py": RIGHT, "wrong.py": WRONG, "own_parts.py": OWN_PARTS, "misspelt.py": MISSPELT}


@pytest.fixture(scope="module")
def found(tmp_path_factory, worker_id) -> str:
    """What mypy finds in all files; it reads torch once for that, which takes most of its time."""
    folder = shared_folder(tmp_path_factory, worker_id, "typing")

    def check() -> None:
        for name, text in FILES.items():
            (folder / name).write_text(text)
        command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--cache-dir", "cache", *FILES]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        (folder / "found").write_text(done.stdout + done.stderr)

    return make_once(folder / "found", check).read_text()


def test_a_model_a_metric_and_a_callback_of_a_user_are_checked_down_to_the_members_of_the_trainer(found):
    assert "Found 4 errors in 2 files (checked 4 source files)" in found, found
    assert "own_parts.py" not in found
    assert 'misspelt.py:8: error: "TrainerContext" has no attribute "global_steps"; maybe "global_step"?' in found
    assert 'misspelt.py:11: error: Argument 1 to "stop_training" of "TrainerContext" has incompatible type' in found
    assert 'misspelt.py:12: error: "Moment" has no attribute "contxt"; maybe "context"?' in found


def test_the_types_of_the_installed_package_are_known_to_mypy(found):
    assert "right.py" not in found
    assert 'wrong.py:4: error: Argument "every" to "Count" has incompatible type "str"; expected "int"' in found

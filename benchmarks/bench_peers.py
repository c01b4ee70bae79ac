"""What a step costs through other frameworks and ours, against the bare PyTorch loop: the trivial task of bench_step.

The extra `bench` brings the others. Same model, same data, same optimizer, one thread, CPU time, turn by turn. Each is
as lean as it goes: no checkpoints, no progress bar, no logger, no model summary, no callback but those that take the
time when training starts and ends, so that building the trainer is not counted. Lightning is measured twice, also with
its own switch for benchmarks, which gives up logging altogether. What each does in a step is its own choice: Ignite and
pytorch-accelerated read the loss as a number, as the bare loop and ours do.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import logging
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench_step import STEPS, bare_loop, trained, trivial_task
from benchmarks.results import Row, report
from benchmarks.timing import print_ratios, take_turns

BARE, OURS = "bare loop", "sonosco_like ModelTrainer"
Train = Callable[[nn.Module, nn.Module, DataLoader[Any]], float]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer that all have."""
    return torch.optim.SGD(model.parameters(), lr=0.001)


def with_lightning(model: nn.Module, loss: nn.Module, data: DataLoader[Any], **options: Any) -> float:
    """`Trainer.fit` of a module with a training step and an optimizer."""
    lightning = importlib.import_module("lightning")
    clock: list[float] = []

    class Module(lightning.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> Any:
            return loss(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return sgd(self.model)

        def on_train_start(self) -> None:
            clock.append(time.process_time())

        def on_train_end(self) -> None:
            clock.append(time.process_time())

    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", devices=1, **options)
    trainer.fit(Module(), data)
    return clock[1] - clock[0]


def with_ignite(model: nn.Module, loss: nn.Module, data: DataLoader[Any]) -> float:
    """`create_supervised_trainer` and its `run`."""
    trainer = importlib.import_module("ignite.engine").create_supervised_trainer(model, sgd(model), loss)
    start = time.process_time()
    trainer.run(data, max_epochs=1)
    return time.process_time() - start


def with_accelerated(model: nn.Module, loss: nn.Module, data: DataLoader[Any]) -> float:
    """`Trainer.train`, which makes its loader itself, here from the settings of ours."""
    package = importlib.import_module("pytorch_accelerated")
    callbacks = importlib.import_module("pytorch_accelerated.callbacks")
    clock: list[float] = []

    class Clock(callbacks.TrainerCallback):  # type: ignore[name-defined,misc]
        def on_training_run_start(self, trainer: Any, **options: Any) -> None:
            clock.append(time.process_time())

        def on_training_run_end(self, trainer: Any, **options: Any) -> None:
            clock.append(time.process_time())

    trainer = package.Trainer(model, loss, sgd(model), callbacks=[Clock])
    settings = {"shuffle": False, "num_workers": 0, "pin_memory": False}
    trainer.train(data.dataset, 1, per_device_batch_size=data.batch_size, train_dataloader_kwargs=settings)
    return clock[1] - clock[0]


LEAN: dict[str, Any] = {
    "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
}  # fmt: skip
PEERS: dict[str, tuple[str, Train]] = {  # the package to be imported, and how it trains
    "pytorch-ignite": ("ignite", with_ignite),
    "pytorch-accelerated": ("pytorch_accelerated", with_accelerated),
    "lightning": ("lightning", partial(with_lightning, **LEAN)),
    "lightning, barebones": ("lightning", partial(with_lightning, barebones=True)),
}


def once(train: Train, model: nn.Module, loss: nn.Module, data: DataLoader[Any]) -> float:
    """CPU seconds of one epoch from the same weights as all others."""
    return train(copy.deepcopy(model), loss, data)


def main() -> None:
    """Print and report the ratios."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # other tools' own
    torch.set_num_threads(1)
    task = trivial_task()
    ways: dict[str, Train] = {BARE: bare_loop, OURS: trained}
    for name, (package, train) in PEERS.items():
        if importlib.util.find_spec(package):
            version = metadata.version(name.partition(",")[0])
            ways[name.replace(",", f" {version},") if "," in name else f"{name} {version}"] = train
        else:
            report(Row(f"step of Linear 8 to 8: {name}", "not installed"))
    seconds = take_turns({name: partial(once, way, *task) for name, way in ways.items()})
    print(f"Linear 8 -> 8, batch 4, {STEPS} steps")
    print_ratios(seconds, BARE)
    for name in list(ways)[1:]:
        goal = 1.15 if name == OURS else None
        report(Row(f"step of Linear 8 to 8: {name}", seconds[name] / seconds[BARE], BARE, goal))


if __name__ == "__main__":
    main()

"""An experiment: a trainer with a name, a seed and a folder in which everything of a run is found again."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode

from sonosco_like.errors import UsageError
from sonosco_like.serialization import dumps, files, load, loads
from sonosco_like.serialization.definition import serializable
from sonosco_like.serialization.document import MAX_BYTES, parse
from sonosco_like.serialization.overrides import apply_overrides
from sonosco_like.serialization.scalars import INT, kind_of
from sonosco_like.training.checkpoints import Checkpoints, step_of
from sonosco_like.training.environment import describe_environment
from sonosco_like.training.interrupts import on_interrupt
from sonosco_like.training.lock import only_process
from sonosco_like.training.randomness import seed_everything
from sonosco_like.training.trainer import ModelTrainer

logger = logging.getLogger(__name__)

CONFIG = "config.yaml"


@serializable
class Experiment:
    """What `sonosco train` runs. `corpus` is prepared before the first batch, if there is one."""

    name: str
    trainer: ModelTrainer
    seed: int = 1234
    corpus: Any = None

    def start(self, folder: str | Path) -> int:
        """Train from the beginning, into a new folder. Returns the signal that interrupted it, or 0."""
        self.folder = files.absolute(folder)
        if (self.folder / CONFIG).exists():
            raise UsageError(f"{folder} holds a run already. Continue it with: sonosco resume {folder}")
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_process(self.folder):
            files.replace_file(self.folder / CONFIG, dumps(self, state=False).encode())
            environment = describe_environment(sys.argv, self.seed)
            files.replace_file(self.folder / "environment.yaml", dumps(environment).removeprefix("!dict\n").encode())
            return self._train(self.trainer.start_training)

    def resume(self) -> int:
        """Train on from the newest intact checkpoint of the folder."""
        with only_process(self.folder):
            return self._train(self.trainer.continue_training)

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints in the folder."""
        return Checkpoints(self.folder)

    def _train(self, train: Any) -> int:
        trainer = self.trainer
        trainer.experiment = self

        def interrupted(name: str) -> None:
            logger.warning("%s: saving after this batch, then leaving. Once more leaves at once.", name)
            trainer.save_checkpoint()
            trainer.stop_training(f"interrupted by {name}")

        with on_interrupt(interrupted) as received:
            train()
        self._finish(trainer, bool(received))
        return received[0] if received else 0

    def _finish(self, trainer: ModelTrainer, interrupted: bool) -> None:
        newest = self.checkpoints.path_of(trainer.global_step)
        if newest.is_dir():
            self.checkpoints.point("latest", newest)
        if not interrupted:
            from sonosco_like.serialization import Snapshot

            Snapshot(trainer).write(self.folder / "final")


def read_experiment(config: Path, overrides: Iterable[str] = ()) -> Experiment:
    """The experiment of a config file, its weights drawn from its seed.

    Models are built while the file is read, so the seed has to be known before.
    """
    if not config.is_file():
        raise UsageError(f"There is no config file {config}.")
    text = files.read_file(config.resolve(), MAX_BYTES)
    overrides = list(overrides)
    seed_everything(_seed(apply_overrides(parse(text, str(config)), overrides)))
    return loads(text, Experiment, source=str(config), overrides=overrides)


def open_run(folder: Path) -> tuple[Experiment, int]:
    """The experiment of a run folder at its newest intact checkpoint, and the step of that."""
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{folder} is not a run folder: it has no {CONFIG}.")
    experiment = read_experiment(folder / CONFIG)
    experiment.folder = files.absolute(folder)
    newest = experiment.checkpoints.newest()
    if newest is None:
        return experiment, 0
    experiment.trainer = load(newest, ModelTrainer)
    return experiment, step_of(newest)


def _seed(node: Node) -> int:
    entries = node.value if isinstance(node, MappingNode) else []
    for key, value in entries:
        if key.value == "seed" and isinstance(value, ScalarNode) and kind_of(value) == INT:
            return int(value.value)
    return 1234

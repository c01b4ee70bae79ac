"""What may change when a run is resumed, and how it takes effect on what was restored.

Every change is kept in `changes.yaml` with the step it was made at. A checkpoint taken later holds it already; if the
run is killed before there is one, the next resume applies it again, so that it takes effect exactly once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from sonosco_like.errors import ConfigError, Problem, StorageError
from sonosco_like.passwords import masked
from sonosco_like.run_folder import CHANGES, CONFIG, step_of
from sonosco_like.serialization import dumps, files, loads, restore
from sonosco_like.serialization.context import Reader
from sonosco_like.serialization.document import MAX_BYTES, parse
from sonosco_like.serialization.folder import GRAPH, open_tensors, read_state
from sonosco_like.serialization.overrides import apply_overrides
from sonosco_like.serialization.text import decode
from sonosco_like.training.change_rules import as_written, changed_leaves, reason_against
from sonosco_like.training.rates import change_optimizer, follow_new_schedule
from sonosco_like.training.trainer import ModelTrainer

logger = logging.getLogger(__name__)

_BY_CONFIG = "by_config"  # the change was made in the config, and not beside it
_DAMAGED = "changes.damaged.yaml"
_TRAINER, _OPTIMIZER = "trainer.", "optimizer."


class Changes:
    """The overrides for a run that goes on from a checkpoint: those of earlier resumes it does not hold, and new ones.

    Without a checkpoint nothing was learned yet, and anything may change.
    """

    def __init__(
        self, folder: Path, checkpoint: Path | None, overrides: Iterable[str] = (), by_config: bool = False
    ) -> None:
        self.by_config = by_config
        self.folder = folder
        self.checkpoint = checkpoint
        self.step = max(0, step_of(checkpoint)) if checkpoint is not None else 0
        self.new = list(overrides)
        self.earlier = [override for step, made in _recorded(folder) if step >= self.step for override in made]
        self._found: dict[str, tuple[str, str]] = {}

    def for_config(self) -> list[str]:
        """What is to be changed in the config of the run before it is read; nothing if there is a checkpoint."""
        return [*self.earlier, *self.new] if self.checkpoint is None else []

    def load(self) -> ModelTrainer:
        """The trainer of the checkpoint with its changes. Raises ConfigError naming all that may not change."""
        assert self.checkpoint is not None, "a run without checkpoint is read from its config"
        overrides = [each.removeprefix(_TRAINER) for each in (*self.earlier, *self.new) if each.startswith(_TRAINER)]
        source = self.checkpoint / GRAPH
        state = read_state(self.checkpoint)
        text = files.read_file(source, MAX_BYTES).decode()
        node = apply_overrides(parse(text, str(source)), overrides)
        trainer = decode(node, ModelTrainer, Reader(str(source), open_tensors(self.checkpoint, state)))
        if overrides:
            self._found = changed_leaves(text, dumps(trainer, state=False), [_path(each) for each in overrides])
        refused = {_TRAINER + path: reason_against(path, trainer) for path in self._found}
        self._refuse({**self._reasons_beside_the_trainer(), **refused})
        optimizer, scheduler = trainer.optimizer, trainer.scheduler
        restore(trainer, self.checkpoint)
        self._take_effect(trainer, optimizer, scheduler)
        self.step = trainer.global_step
        return trainer  # type: ignore[no-any-return]

    def record(self) -> None:
        """Write the new changes down, before the first batch that they concern."""
        if self.checkpoint is not None:
            mine = list(map(_inner, self.new))
            found = {path: value for path, value in self._found.items() if any(_within(path, own) for own in mine)}
            self.new = [override for override in self.new if any(_within(path, _inner(override)) for path in found)]
        else:
            found = {}
        if not self.new:
            return
        entry: dict[str, Any] = {"step": self.step, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "set": self.new}
        if self.by_config:
            entry[_BY_CONFIG] = True
        entry["changed"] = {_TRAINER + path: {"from": old, "to": new} for path, (old, new) in found.items()}
        path = self.folder / CHANGES
        if _read_changes(path) is None:
            path.replace(path.with_name(_DAMAGED))
        before = files.read_file(path, MAX_BYTES) if path.exists() else b""
        text = before.decode() + yaml.safe_dump([entry], sort_keys=False, allow_unicode=True)
        files.replace_file(path, text.encode(), private=masked(text) != text)
        for name, (old, new) in found.items():
            logger.info("changed from step %d on: %s%s: %s -> %s", self.step, _TRAINER, name, old, new)

    def _take_effect(self, trainer: ModelTrainer, optimizer: Any, scheduler: Any) -> None:
        """Put into the restored optimizer and schedule what their records say now; state brought back the old."""
        changed = [path for path in self._found if path.startswith(_OPTIMIZER)]
        names = [path.removeprefix(_OPTIMIZER).partition("[")[0] for path in changed]
        old_rate = self._found.get("optimizer.lr")
        change_optimizer(trainer, {name: getattr(optimizer, name) for name in names}, old_rate and float(old_rate[0]))
        if any(path.startswith("scheduler.") for path in self._found):
            follow_new_schedule(trainer, scheduler)

    def _reasons_beside_the_trainer(self) -> dict[str, str | None]:
        """Why what is not the trainer's may not change: seed and first weights are those the run has."""
        outer = [override for override in self.new if not override.startswith(_TRAINER)]
        if not outer:
            return {}
        config = files.read_file(self.folder / CONFIG, MAX_BYTES)
        before = as_written(parse(config, CONFIG))
        after = as_written(apply_overrides(parse(config, CONFIG), outer))
        return {path: reason_against(path, None) for path in changed_leaves(before, after, list(map(_path, outer)))}

    def _refuse(self, reasons: dict[str, str | None]) -> None:
        problems = [Problem(reason, path, "--set") for path, reason in reasons.items() if reason is not None]
        if problems:
            remedy = f"To train with other settings, begin a new run from these weights: --set init_from={self.folder}"
            problems[-1] = Problem(f"{problems[-1].message}\n{remedy}", problems[-1].path, "--set")
            raise ConfigError(problems)


def config_changes(folder: Path) -> list[str]:
    """The changes that were made in the config since a run began: what it says is compared with these in it."""
    path = folder / CHANGES
    if not path.exists() or not _read_changes(path):
        return []
    content: list[dict[str, Any]] = loads(files.read_file(path, MAX_BYTES), list[dict[str, Any]])
    return [str(each) for entry in content if entry.get(_BY_CONFIG) for each in entry["set"]]


def _recorded(folder: Path) -> list[tuple[int, list[str]]]:
    """The changes of earlier resumes, the oldest first; none, with a warning, if their file is damaged."""
    found = _read_changes(folder / CHANGES)
    if found is None:
        logger.warning(
            "%s cannot be read. Checkpoints hold the changes made before them; those made after the newest checkpoint "
            "have to be given again with --set.",
            folder / CHANGES,
        )
    return found or []


def _read_changes(path: Path) -> list[tuple[int, list[str]]] | None:
    """The changes in a file by their steps; None if it is not a list of changes, each with `step` and `set`."""
    if not path.exists():
        return []
    try:
        text = files.read_file(path, MAX_BYTES)
        content: list[dict[str, Any]] = loads(text, list[dict[str, Any]]) if text.strip() else []
        return [(int(entry["step"]), [str(each) for each in entry["set"]]) for entry in content]
    except (StorageError, TypeError, KeyError, ValueError):  # a ConfigError is a ValueError
        return None


def _path(override: str) -> str:
    return override.partition("=")[0].strip()


def _inner(override: str) -> str:
    return _path(override).removeprefix(_TRAINER)


def _within(path: str, outer: str) -> bool:
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))

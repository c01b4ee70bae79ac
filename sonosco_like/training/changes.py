"""The settings that may change when a run is resumed, and how a change takes effect on the restored trainer.

Every change is recorded in `changes.yaml` with its step. A later checkpoint holds the change; if the run is killed
before such a checkpoint, the next resume applies the change again. So each change takes effect exactly once.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sonosco_like.errors import ConfigError, Problem, StorageError
from sonosco_like.optim import CyclicLR, OneCycleLR, Schedule
from sonosco_like.redaction import mask_secrets
from sonosco_like.runs.run_folder import CHANGES, step_of
from sonosco_like.serialization import Document, Saved, loads, read_file, replace_file
from sonosco_like.training.optimization import change_optimizer, follow_new_schedule
from sonosco_like.training.trainer import ModelTrainer

logger = logging.getLogger(__name__)

_BY_CONFIG = "by_config"  # the change was made in the config file, not by `--set`
_DAMAGED = "changes.damaged.yaml"
_TRAINER, _OPTIMIZER = "trainer.", "optimizer."
_ABSENT = "(absent)"
_CANNOT = "cannot change when a run is resumed:"

_ALLOWED = re.compile(
    r"epochs|max_duration|test_step|clip_grads|clip_values|device"
    r"|optimizer\.(lr|weight_decay|betas\[\d\]|eps|momentum|dampening|alpha|rho|momentum_decay)"
    r"|callbacks\[\d+\]\.(?!class$).+"
    r"|decoder\.(?!class$).+"
    r"|(train|val|test)_data_loader(\.\w+)?\.(num_workers|prefetch|pin_memory|dataset\.manifest(\[\d+\]\.manifest)?)"
    r"|(val|test)_data_loader(\.\w+)?\.sampler\.batch_(size|seconds)"
)

_REASONS = [
    (r"(.*\.)?class", "its state in the checkpoint is that of the former class."),
    (r"model\b.*", "the weights of the checkpoint are those of the former model."),
    (r".*\.tokenizer\b.*", "the model has learned the labels of the former tokenizer."),
    (
        r".*\.(features|normalization|cleaner)\b.*",
        "the model has learned from data that was prepared with the former settings.",
    ),
    (r".*\.seed", "the order of the data and all random numbers depend on it."),
    (r"train_data_loader\.sampler\b.*", "the position in the epoch is counted in the former batches."),
    (r"train_data_loader\b.*", "the rest of the run would use other data than its history records."),
    (
        r"accumulate_gradients|precision",
        "the checkpoint may hold gradients and scales that were computed with the former setting.",
    ),
    (r"scheduler\b.*", "this schedule keeps its settings in its state; only schedules that are a formula can change."),
    (r"optimizer\b.*", "the moments of the optimizer were computed with the former settings."),
    (r"callbacks\b.*", "callbacks are restored by their index in the list; none can be added, removed or replaced."),
]
_OUTER_REASONS = [
    (r"seed", "the order of the data and all random numbers depend on it."),
    (r"init_from\b.*", "initial weights are loaded only when a run starts."),
    (r"(name|corpus|remote)\b.*", "it is read from config.yaml in the run folder; change it there."),
    (r"trainer\b.*", "give the settings of the trainer one by one, such as trainer.epochs=20."),
]


class Changes:
    """The overrides for a resumed run: the new ones, and the earlier ones that its checkpoint does not hold yet.

    A run without a checkpoint has learned nothing yet, so anything may change. `by_config` means that the new overrides
    are edits of the config file itself.
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
        """The overrides to apply to the config; none if there is a checkpoint."""
        return [*self.earlier, *self.new] if self.checkpoint is None else []

    def load(self, config: Document | None = None, types: Mapping[str, Any] | None = None) -> ModelTrainer:
        """The trainer of the checkpoint with the changes. Raises ConfigError with every change that is not allowed.

        Settings outside the trainer are checked against `config`, the config of the run; `types` are the types of its
        fields.
        """
        assert self.checkpoint is not None, "a run without checkpoint is read from its config"
        saved = Saved(self.checkpoint)
        overrides = [each.removeprefix(_TRAINER) for each in (*self.earlier, *self.new) if each.startswith(_TRAINER)]
        trainer = saved.settings(overrides).build(ModelTrainer)
        if overrides:
            paths = [_path(each) for each in overrides]
            self._found = changed_values(saved.leaves(), Document.of(trainer).leaves(), paths)
        refused = {_TRAINER + path: reason_against(path, trainer) for path in self._found}
        outer = {} if config is None else self._reasons_outside_the_trainer(config, types or {})
        self._refuse({**outer, **refused})
        optimizer, scheduler = trainer.optimizer, trainer.scheduler
        saved.restore_into(trainer)
        self._take_effect(trainer, optimizer, scheduler)
        self.step = trainer.global_step
        return trainer

    def record(self) -> None:
        """Write the new changes to `changes.yaml`, before the first batch that is trained with them."""
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
        before = read_file(path) if path.exists() else b""
        text = before.decode() + yaml.safe_dump([entry], sort_keys=False, allow_unicode=True)
        replace_file(path, text.encode(), private=mask_secrets(text) != text)
        for name, (old, new) in found.items():
            logger.info("changed from step %d on: %s%s: %s -> %s", self.step, _TRAINER, name, old, new)

    def _take_effect(self, trainer: ModelTrainer, optimizer: Any, scheduler: Any) -> None:
        """Apply the new settings of the optimizer and the schedule again: the restored state has overwritten them."""
        changed = [path for path in self._found if path.startswith(_OPTIMIZER)]
        names = [path.removeprefix(_OPTIMIZER).partition("[")[0] for path in changed]
        old_rate = self._found.get("optimizer.lr")
        change_optimizer(trainer, {name: getattr(optimizer, name) for name in names}, old_rate and float(old_rate[0]))
        if any(path.startswith("scheduler.") for path in self._found) and not scheduler.lengths:
            follow_new_schedule(trainer, scheduler)  # one with lengths is counted when the data is there

    def _reasons_outside_the_trainer(self, config: Document, types: Mapping[str, Any]) -> dict[str, str | None]:
        """The reasons why settings outside the trainer, such as the seed, may not change, by path."""
        outer = [override for override in self.new if not override.startswith(_TRAINER)]
        if not outer:
            return {}
        before = _normalised_leaves(config, types)
        config.override(outer)
        found = changed_values(before, _normalised_leaves(config, types), list(map(_path, outer)))
        return {path: reason_against(path, None) for path in found}

    def _refuse(self, reasons: dict[str, str | None]) -> None:
        problems = [Problem(reason, path, "--set") for path, reason in reasons.items() if reason is not None]
        if problems:
            remedy = f"To train with other settings, begin a new run from these weights: --set init_from={self.folder}"
            problems[-1] = Problem(f"{problems[-1].message}\n{remedy}", problems[-1].path, "--set")
            raise ConfigError(problems)


def reason_against(path: str, trainer: Any) -> str | None:
    """The reason why the setting at a path may not change; None if it may change.

    With a trainer, which has the new setting already, the path is one in the trainer; without, one in the experiment.
    """
    if trainer is None:
        known = _reason(path, _OUTER_REASONS)
        return known or "is not a setting of an experiment; settings of the trainer begin with `trainer.`"
    if path == "optimizer.lr" and (owner := _owner_of_rates(trainer.scheduler)):
        return f"{_CANNOT} {owner} computes learning rates from its own settings, not from those of the optimizer."
    if path.startswith("scheduler.") and not path.endswith(".class") and isinstance(trainer.scheduler, Schedule):
        return None
    if _ALLOWED.fullmatch(path):
        return None
    return _reason(path, _REASONS) or f"{_CANNOT} the results so far were computed with the former value."


def changed_values(
    before: Mapping[str, str], after: Mapping[str, str], paths: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """The values that differ between the leaves of two documents, by path, as (old, new).

    A value that only one of them has counts as a change only under one of `paths`: elsewhere it comes from another
    version of a class. The version in the name of a class is no change.
    """
    found = {}
    for path in dict.fromkeys([*before, *after]):
        values = before.get(path, _ABSENT), after.get(path, _ABSENT)
        if path.endswith("class") and values[0].partition("@")[0] == values[1].partition("@")[0]:
            continue
        if values[0] != values[1] and (_ABSENT not in values or path.startswith(tuple(paths))):
            found[path] = values
    return found


def config_changes(folder: Path) -> list[str]:
    """The recorded changes that were edits of the config file."""
    path = folder / CHANGES
    if not path.exists() or not _read_changes(path):
        return []
    content: list[dict[str, Any]] = loads(read_file(path), list[dict[str, Any]])
    return [str(each) for entry in content if entry.get(_BY_CONFIG) for each in entry["set"]]


def _recorded(folder: Path) -> list[tuple[int, list[str]]]:
    """The recorded changes by step, the oldest first; none, after a warning, if the file is damaged."""
    found = _read_changes(folder / CHANGES)
    if found is None:
        logger.warning(
            "%s cannot be read. Checkpoints hold the changes made before them; give later changes again with --set.",
            folder / CHANGES,
        )
    return found or []


def _read_changes(path: Path) -> list[tuple[int, list[str]]] | None:
    """The changes in a file by step; None if the file is not a list of changes, each with `step` and `set`."""
    if not path.exists():
        return []
    try:
        text = read_file(path)
        content: list[dict[str, Any]] = loads(text, list[dict[str, Any]]) if text.strip() else []
        return [(int(entry["step"]), [str(each) for each in entry["set"]]) for entry in content]
    except (StorageError, TypeError, KeyError, ValueError):  # a ConfigError is a ValueError
        return None


def _normalised_leaves(config: Document, types: Mapping[str, Any]) -> dict[str, str]:
    """The values of a config by path, as they would be saved: 2 becomes 2.0 where a float is expected."""
    for name, kind in types.items():
        config.normalise(name, kind)
    return config.leaves()


def _path(override: str) -> str:
    return override.partition("=")[0].strip()


def _inner(override: str) -> str:
    return _path(override).removeprefix(_TRAINER)


def _within(path: str, outer: str) -> bool:
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def _reason(path: str, reasons: list[tuple[str, str]]) -> str | None:
    return next((f"{_CANNOT} {reason}" for pattern, reason in reasons if re.fullmatch(pattern, path)), None)


def _owner_of_rates(scheduler: Any) -> str | None:
    if isinstance(scheduler, (OneCycleLR, CyclicLR)):
        return type(scheduler).__name__
    return next(filter(None, map(_owner_of_rates, getattr(scheduler, "schedulers", ()))), None)

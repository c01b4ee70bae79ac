"""The table of runs in a folder, read from the small files that every run keeps."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sonosco_like.errors import ConfigError, UsageError
from sonosco_like.runs.run_folder import CHECKPOINTS, CONFIG, ENVIRONMENT, FINAL, LATEST, LOCK, METRICS, STATUS, step_of
from sonosco_like.serialization import loads

_NAME = re.compile(r"^name: (.*)$", re.MULTILINE)
_HEAD = 4096  # characters of a config in which its name is looked for
_MOST_METRICS = 8 * 2**20  # bytes; of a longer file of metrics only the end is read
_DEPTH = 3  # of folders in which runs are looked for
_TOO_LARGE = 1e300
_LOCKED = re.compile(r"^\d+: (?:FLOCK|POSIX) .* [0-9a-f]+:[0-9a-f]+:(\d+) ", re.MULTILINE)


@dataclass(frozen=True)
class RunSummary:
    """One run: its folder, its state, and the last and the best value of each measure on validation data.

    `epoch` is the current epoch or, of a finished run, the last one; it counts from 0, as the trainer does.
    """

    folder: Path
    name: str
    state: str
    started: float
    active: float
    epoch: int | None = None
    step: int | None = None
    last: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    lower_is_better: dict[str, bool] = field(default_factory=dict)
    reason: str = ""
    epochs: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The same as plain data; times as ISO texts."""
        times = {name: _iso(getattr(self, name)) for name in ("started", "active")}
        return {**vars(self), **times, "folder": self.folder.as_posix()}


def find_runs(folder: Path) -> list[RunSummary]:
    """Every run in a folder, or the run that the folder is; the run that started last comes first."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}. Runs are in `runs`, unless they were started with --run-dir.")
    held = _locked_files()
    return sorted((read_run(path, held) for path in _run_folders(folder)), key=lambda run: -run.started)


def read_run(folder: Path, held: set[int] | None) -> RunSummary:
    """The summary of one run, given the inodes of locked files. A missing or damaged file leaves its values empty."""
    status = _yaml(folder / STATUS)
    rows = validation_rows(folder)
    directions = _directions(rows, status.get("lower_is_better"))
    best = {name: _best([row[name] for row in rows if name in row], lower) for name, lower in directions.items()}
    step = max((value for value in (_as_int(status.get("step")), _last_checkpoint(folder)) if value), default=None)
    state = _state(folder, status, held)
    return RunSummary(
        folder,
        _name(folder / CONFIG),
        state,
        _started(folder),
        max(path.stat().st_mtime for path in _active_files(folder)),
        _epoch(rows, status, state),
        step,
        {name: value for name, value in rows[-1].items() if name.startswith("val_")} if rows else {},
        {name: value for name, value in best.items() if value is not None},
        directions,
        str(status.get("reason", "")),
        _as_int(status.get("epochs")),
    )


def finished_epochs(folder: Path) -> int:
    """How many epochs a finished run has done, by its status file; 0 if the run is not finished."""
    status = _yaml(folder / STATUS)
    return (_as_int(status.get("epoch")) or 0) if status.get("state") == "finished" else 0


def _epoch(rows: list[dict[str, Any]], status: dict[str, Any], state: str) -> int | None:
    """The epoch of the last validation or of the status file, whichever is later."""
    validated = _as_int(rows[-1].get("epoch")) if rows else None
    current = _as_int(status.get("epoch"))
    if state == "finished":  # the status then holds the epoch that would come next
        return validated if validated is not None or current is None else max(0, current - 1)
    known = [epoch for epoch in (validated, current) if epoch is not None]
    epochs = _as_int(status.get("epochs"))
    return min(max(known), epochs - 1 if epochs else max(known)) if known else None


def _run_folders(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """The folders with a config. Folders inside a run are not searched."""
    if (folder / CONFIG).is_file():
        yield folder
    elif depth:
        for name in sorted(_folders_in(folder)):
            yield from _run_folders(folder / name, depth - 1)


def _folders_in(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except PermissionError:  # a folder of another user
        return []


def _state(folder: Path, status: dict[str, Any], held: set[int] | None) -> str:
    """The state of a run. A run whose status is `running`, but whose lock is free, was killed."""
    lock = folder / LOCK
    if lock.is_file() and (_is_alive(lock) if held is None else lock.stat().st_ino in held):
        return "running"
    state = str(status.get("state", "finished" if (folder / FINAL).is_dir() else "interrupted"))
    return "interrupted" if state == "running" else state


def _locked_files() -> set[int] | None:
    """The inodes of all files that a process has locked; None if the system has no list of them.

    Taking the lock of a run to test it could stop the run's own process from taking it; reading the list cannot.
    """
    try:
        return {int(inode) for inode in _LOCKED.findall(Path("/proc/locks").read_text())}
    except OSError:
        return None


def _is_alive(lock: Path) -> bool:
    """Whether the process whose id is in a lock file still runs."""
    try:
        os.kill(int(lock.read_text()), 0)
    except (ValueError, OSError):
        return False
    return True


def validation_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows with a validation in the metrics file of a run, without infinite numbers; of a long file the last ones.

    The list is empty if the run writes no such file.
    """
    return list(_validations(folder / METRICS))


def _validations(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_METRICS))
        for line in file:
            if b'"val_' not in line or not line.endswith(b"\n"):
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):  # reading may begin in the middle of a row
                continue
            if isinstance(row, dict):
                yield {name: value for name, value in row.items() if _is_number(value)}


def _directions(rows: list[dict[str, Any]], declared: Any) -> dict[str, bool]:
    """Whether lower is better, for each measure of a validation. A measure of an unknown metric is left out."""
    known = declared if isinstance(declared, dict) else {"loss": True}
    names = dict.fromkeys(name for row in rows for name in row if name.startswith("val_"))
    found = {name: [metric for metric in known if name.endswith(f"_{metric}")] for name in names}
    return {name: bool(known[max(metrics, key=len)]) for name, metrics in found.items() if metrics}


def _best(values: list[float], lower: bool) -> float | None:
    return None if not values else min(values) if lower else max(values)


def _name(config: Path) -> str:
    with config.open(encoding="utf-8", errors="replace") as file:
        found = _NAME.search(file.read(_HEAD))
    try:
        return str(loads(found.group(1), Any)) if found else config.parent.name
    except ConfigError:
        return config.parent.name


def _started(folder: Path) -> float:
    started = _yaml(folder / ENVIRONMENT).get("started")
    try:
        return datetime.fromisoformat(str(started)).timestamp()
    except ValueError:
        return (folder / CONFIG).stat().st_mtime


def _last_checkpoint(folder: Path) -> int | None:
    newest = max(map(step_of, folder.glob(f"{CHECKPOINTS}/*")), default=-1)
    return newest if newest >= 0 else None


def _active_files(folder: Path) -> Iterator[Path]:
    """The files that a run writes while it is active."""
    yield from (path for name in (CONFIG, METRICS, STATUS, LATEST) if (path := folder / name).exists())


def _yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = loads(path.read_bytes(), dict[str, Any])
    except (OSError, ConfigError):
        return {}
    return content


def _as_int(value: Any) -> int | None:
    return int(value) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    """Whether a value is a finite number of a reasonable size."""
    return isinstance(value, (int, float)) and abs(value) < _TOO_LARGE


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))

"""Fetching a run from its remote copy into a local folder."""

from __future__ import annotations

import json
import logging
from pathlib import Path, PurePosixPath
from typing import Any

from sonosco_like.errors import ConfigError, StorageError, UsageError, as_sentence, message_of
from sonosco_like.runs.checkpoints import checkpoints_of
from sonosco_like.runs.identity import read_id
from sonosco_like.runs.lock import only_process
from sonosco_like.runs.remote_copy import COMPLETE, REMOTE_NAME, complete_folders, open_url, remote_folders
from sonosco_like.runs.run_folder import CONFIG, RUN_ID, step_of
from sonosco_like.serialization import GRAPH_FILE, STATE_FILE, TENSOR_FILE, absolute_path, new_folder, verify

logger = logging.getLogger(__name__)

_LARGEST_SMALL_FILE = 2**16  # bytes of `complete.json` and `run_id`


def fetch_run(url: str, into: Path | None = None) -> Path:
    """Fetch the run at a URL to the folder `into`, or `runs/<last part of the URL>`; returns the folder.

    Only complete and intact checkpoints are fetched. Files of a local run that has come as far are not replaced.
    """
    system, root = open_url(url)
    folder = absolute_path(into or Path("runs") / root.rpartition("/")[2])
    try:
        if not system.exists(f"{root}/{CONFIG}"):
            raise UsageError(f"There is no run at {url}: it has no {CONFIG}.")
        _refuse_another_run(system, root, folder, url)
        folder.mkdir(parents=True, exist_ok=True)
        with only_process(folder):
            _fetch(system, root, folder)
    except (UsageError, StorageError):
        raise
    except Exception as error:  # each kind of store has its own error classes
        raise StorageError(
            f"{url} could not be fetched: {as_sentence(message_of(error))} When it can be reached again, continue "
            f"with: sonosco resume {url}"
        ) from error
    logger.info("%s was fetched to %s.", url, folder)
    return folder


def _fetch(system: Any, root: str, folder: Path) -> None:
    """Fetch the config last, because a folder with a config counts as a run."""
    found = _newest_first(system, root)
    remote_step = max(found.values(), default=-1)
    local_step = max(map(step_of, checkpoints_of(folder)), default=-1)
    for name in found:
        target = folder / name.rpartition("-")[0]
        if not target.exists():
            _fetch_folder(system, f"{root}/{name}", target)
    for name in sorted(_other_files(system, root), key=lambda name: name == CONFIG):
        if local_step < remote_step or not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            aside = (folder / name).with_name(f".{Path(name).name}.saving")
            system.get_file(f"{root}/{name}", str(aside))
            aside.replace(folder / name)


def _newest_first(system: Any, root: str) -> dict[str, int]:
    """The complete remote checkpoints and their steps, the highest step first, then the last copied one."""
    found = []
    for name in complete_folders(system, root):
        match = REMOTE_NAME.fullmatch(name)
        if match:
            found.append((int(match[2] or 0), _time(system, f"{root}/{name}/{COMPLETE}"), name))
    return {name: step for step, _, name in sorted(found, reverse=True)}


def _time(system: Any, marker: str) -> float:
    try:
        return float(json.loads(system.cat_file(marker, end=_LARGEST_SMALL_FILE))["time"])
    except (ValueError, KeyError, TypeError):
        return 0.0


def _fetch_folder(system: Any, source: str, target: Path) -> None:
    try:
        with new_folder(target) as aside:
            for name in (GRAPH_FILE, TENSOR_FILE, STATE_FILE):
                system.get_file(f"{source}/{name}", str(aside / name))
            verify(aside)
    except (StorageError, ConfigError) as error:
        logger.warning("The remote checkpoint %s is damaged and not used: %s", target.name, error)


def _other_files(system: Any, root: str) -> list[str]:
    """The other remote files of the run; a name that leads out of its folder is left out."""
    saved = tuple(f"{name}/" for name in remote_folders(system, root))
    names = [path[path.index(root) + len(root) + 1 :] for path in system.find(root)]
    return [name for name in names if not name.startswith(saved) and _stays_inside(name)]


def _stays_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and "\\" not in name and ":" not in name and not any(part[0] in "./" for part in parts)


def _refuse_another_run(system: Any, root: str, folder: Path, url: str) -> None:
    """Raise UsageError if the ids of the runs differ; if one has none, as in older versions, their configs decide."""
    here, there = read_id(folder / RUN_ID), _remote_id(system, root)
    is_another = here is not None and there is not None and here != there
    if (here is None or there is None) and (folder / CONFIG).is_file():
        is_another = (folder / CONFIG).read_bytes() != system.cat_file(f"{root}/{CONFIG}")
    if is_another:
        raise UsageError(f"{folder} holds another run than {url}. Choose another folder with --run-dir.")


def _remote_id(system: Any, root: str) -> str | None:
    try:
        return (
            str(system.cat_file(f"{root}/{RUN_ID}", end=_LARGEST_SMALL_FILE).decode(errors="replace")).strip() or None
        )
    except FileNotFoundError:
        return None

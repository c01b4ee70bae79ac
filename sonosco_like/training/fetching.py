"""A run that was copied to a URL, brought back into a folder."""

from __future__ import annotations

import json
import logging
from pathlib import Path, PurePosixPath
from typing import Any

from sonosco_like.errors import ConfigError, StorageError, UsageError
from sonosco_like.inference.checkpoints import checkpoints_of
from sonosco_like.inference.ownership import written_id
from sonosco_like.run_folder import CONFIG, RUN_ID, step_of
from sonosco_like.serialization import files, verify
from sonosco_like.serialization.folder import GRAPH, STATE, TENSORS
from sonosco_like.training.lock import only_process
from sonosco_like.training.remote import open_url
from sonosco_like.training.remote_place import COMPLETE, FORM, complete_folders, folders

logger = logging.getLogger(__name__)

_LONGEST_MARK = 2**16


def fetch_run(url: str, into: Path | None = None) -> Path:
    """The run at a URL as a folder here: `into`, or `runs/<last part of the URL>`.

    Only what is complete and intact is taken. A run that has come as far here stays as it is.
    """
    system, root = open_url(url)
    folder = files.absolute(into or Path("runs") / root.rpartition("/")[2])
    try:
        if not system.exists(f"{root}/{CONFIG}"):
            raise UsageError(f"There is no run at {url}: it has no {CONFIG}.")
        _refuse_another_run(system, root, folder, url)
        folder.mkdir(parents=True, exist_ok=True)
        with only_process(folder):
            _fetch(system, root, folder)
    except (UsageError, StorageError):
        raise
    except Exception as error:  # each kind of store has its own
        raise StorageError(
            f"{url} could not be fetched: {type(error).__name__}: {error}. When it can be reached again, continue "
            f"with: sonosco resume {url}"
        ) from error
    logger.info("%s was fetched to %s.", url, folder)
    return folder


def _fetch(system: Any, root: str, folder: Path) -> None:
    """Fetch the config last: with it the folder is a run."""
    found = _newest_first(system, root)
    furthest, own = max(found.values(), default=-1), max(map(step_of, checkpoints_of(folder)), default=-1)
    for name in found:
        target = folder / name.rpartition("-")[0]
        if not target.exists():
            _fetch_folder(system, f"{root}/{name}", target)
    for name in sorted(_other_files(system, root), key=lambda name: name == CONFIG):
        if own < furthest or not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            aside = (folder / name).with_name(f".{Path(name).name}.saving")
            system.get_file(f"{root}/{name}", str(aside))
            aside.replace(folder / name)


def _newest_first(system: Any, root: str) -> dict[str, int]:
    """Complete folders and their steps, the newest checkpoint first; of one step the one that was copied last."""
    found = []
    for name in complete_folders(system, root):
        match = FORM.fullmatch(name)
        if match:
            found.append((int(match[2] or 0), _time(system, f"{root}/{name}/{COMPLETE}"), name))
    return {name: step for step, _, name in sorted(found, reverse=True)}


def _time(system: Any, marker: str) -> float:
    try:
        return float(json.loads(system.cat_file(marker, end=_LONGEST_MARK))["time"])
    except (ValueError, KeyError, TypeError):
        return 0.0


def _fetch_folder(system: Any, source: str, target: Path) -> None:
    try:
        with files.new_folder(target) as aside:
            for name in (GRAPH, TENSORS, STATE):
                system.get_file(f"{source}/{name}", str(aside / name))
            verify(aside)
    except (StorageError, ConfigError) as error:
        logger.warning("The remote checkpoint %s is damaged and not used: %s", target.name, error)


def _other_files(system: Any, root: str) -> list[str]:
    """The other files of the run, by names that stay within its folder."""
    saved = tuple(f"{name}/" for name in folders(system, root))
    names = [path[path.index(root) + len(root) + 1 :] for path in system.find(root)]
    return [name for name in names if not name.startswith(saved) and _is_harmless(name)]


def _is_harmless(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and "\\" not in name and ":" not in name and not any(part[0] in "./" for part in parts)


def _refuse_another_run(system: Any, root: str, folder: Path, url: str) -> None:
    """Tell runs by their ids; where one has none, as those of older versions, by their configs."""
    here, there = written_id(folder / RUN_ID), _id_there(system, root)
    is_another = here is not None and there is not None and here != there
    if (here is None or there is None) and (folder / CONFIG).is_file():
        is_another = (folder / CONFIG).read_bytes() != system.cat_file(f"{root}/{CONFIG}")
    if is_another:
        raise UsageError(f"{folder} holds another run than {url}; choose another folder with --run-dir.")


def _id_there(system: Any, root: str) -> str | None:
    try:
        return str(system.cat_file(f"{root}/{RUN_ID}", end=_LONGEST_MARK).decode(errors="replace")).strip() or None
    except FileNotFoundError:
        return None

"""The place of a remote copy: whose it is, and what of it may be written over or deleted.

The first file that is written there is `run_id`, the id of the run. A place that holds something else is never touched.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

from sonosco_like.errors import ConfigError, StorageError, UsageError
from sonosco_like.inference.ownership import written_id
from sonosco_like.run_folder import CHECKPOINTS, CONFIG, ENVIRONMENT, FINAL, RUN_ID
from sonosco_like.serialization.folder import GRAPH, STATE, TENSORS, origin_in

logger = logging.getLogger(__name__)

COMPLETE = "complete.json"
SAVED = (STATE, GRAPH, TENSORS)  # in this order, so that what a killed copy left says whose it is
FORM = re.compile(r"(checkpoints/step-(\d{8,})|final)-[0-9a-f]{12}")


class RemotePlace:
    """A folder in a file system of fsspec that is to hold the copy of the run in `folder`."""

    def __init__(self, system: Any, root: str, url: str, folder: Path) -> None:
        self.system, self.root, self.url, self.folder = system, root, url, folder
        self.id = written_id(folder / RUN_ID) or ""
        self._is_claimed = False

    def claim(self, local: set[str]) -> None:
        """Make the place this run's, given the names of what is saved here. Raises UsageError if it is another's."""
        told = self._read(RUN_ID)
        if told is not None and told.decode(errors="replace").strip() != self.id:
            raise UsageError(
                f"{self.url} holds another run. Give this one a `remote` of its own, or continue that one with: "
                f"sonosco resume {self.url}"
            )
        if told is None:
            self._refuse_what_is_not_ours(local)
            self.system.makedirs(self.root, exist_ok=True)
            self.system.pipe_file(f"{self.root}/{RUN_ID}", f"{self.id}\n".encode())
        if not self._is_claimed:
            self._refuse_to_fall_back(local)
        self._is_claimed = True

    def delete(self, name: str) -> None:
        """Delete a folder of ours, its mark of completeness first; what others put there stays."""
        found = self._files_of(name)
        if found is None or not self._wrote(name):
            return
        for file in sorted(found, key=lambda file: file != COMPLETE):
            self.system.rm_file(f"{self.root}/{name}/{file}")
        if self.system.exists(f"{self.root}/{name}"):  # in a store of objects it went with its last file
            self.system.rmdir(f"{self.root}/{name}")

    def _files_of(self, name: str) -> list[str] | None:
        """The files in a folder there; None if it holds anything that a copy of a checkpoint does not."""
        found = names_in(self.system, f"{self.root}/{name}")
        return found if FORM.fullmatch(name) and set(found) <= {*SAVED, COMPLETE} else None

    def _wrote(self, name: str) -> bool:
        """Whether a folder there is of this run; one that an older version wrote, or a kill cut short, says no id."""
        try:
            told = json.loads(self._read(f"{name}/{COMPLETE}") or b"{}").get("run")
        except (ValueError, AttributeError):
            return False
        if told is None:
            try:
                origin = origin_in(self._read(f"{name}/{STATE}") or b"", name)
            except (StorageError, ConfigError):  # torn by a kill
                origin = None
            told = origin.run if origin is not None else self.id
        return bool(told == self.id)

    def _refuse_what_is_not_ours(self, local: set[str]) -> None:
        """A place without an id must be empty, or what an older version copied of this very run."""
        there = names_in(self.system, self.root)
        if not there:
            return
        same_config = self._is_same(CONFIG)
        shared = sorted(local & set(complete_folders(self.system, self.root)))
        if not same_config or not (shared or self._is_same(ENVIRONMENT)):
            raise UsageError(
                f"{self.url} is not empty and does not hold this run ({', '.join(sorted(there)[:5])}). It was left "
                "as it is. Give the run a `remote` that is empty or not there yet."
            )
        proof = shared[0] if shared else ENVIRONMENT
        logger.info("%s has no %s; it is this run's, for %s and %s are the same.", self.url, RUN_ID, CONFIG, proof)

    def _refuse_to_fall_back(self, local: set[str]) -> None:
        """A folder that is behind its copy would have what is newer there deleted."""
        there = max(map(_step, complete_folders(self.system, self.root)), default=-1)
        here = max(map(_step, local), default=-1)
        if there > here:
            raise UsageError(
                f"{self.url} has come further with this run (step {there}) than {self.folder} ({_said(here)}). "
                f"Continue it with: sonosco resume {self.url} --run-dir {self.folder}"
            )

    def _is_same(self, name: str) -> bool:
        here = self.folder / name
        return here.is_file() and self._read(name) == here.read_bytes()

    def _read(self, name: str) -> bytes | None:
        try:
            content: bytes = self.system.cat_file(f"{self.root}/{name}")
        except FileNotFoundError:
            return None
        return content


def folders(system: Any, root: str) -> list[str]:
    """The folders with checkpoints there, complete or not, by their names in the run."""
    checkpoints = [f"{CHECKPOINTS}/{name}" for name in names_in(system, f"{root}/{CHECKPOINTS}")]
    return checkpoints + [name for name in names_in(system, root) if name.startswith(f"{FINAL}-")]


def complete_folders(system: Any, root: str) -> list[str]:
    """Those of the folders there that are complete copies of checkpoints."""
    named = [name for name in folders(system, root) if FORM.fullmatch(name)]
    return [name for name in named if system.exists(f"{root}/{name}/{COMPLETE}")]


def names_in(system: Any, path: str) -> list[str]:
    """What is in a folder there; nothing if there is none."""
    try:
        found = [each.rstrip("/") for each in system.ls(path, detail=False)]
    except FileNotFoundError:
        return []
    return [each.rpartition("/")[2] for each in found if each != path.rstrip("/")]


def _step(name: str) -> int:
    """The step of a remote folder; that of `final` is not in its name."""
    match = FORM.fullmatch(name)
    return int(match[2]) if match and match[2] else 0


def _said(step: int) -> str:
    return f"step {step}" if step >= 0 else "nothing was saved there"

"""The remote copy of a run: a thread copies the run folder to a URL, from which another machine can resume the run.

The remote folder has the layout of the run folder. Its `run_id` is written first and names the run. The name of each
remote checkpoint holds its step and the hash of its state, so that none is ever overwritten. `complete.json` is written
last; a remote checkpoint without it is incomplete and is not read.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import re
import shutil
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sonosco_like.errors import (
    ConfigError,
    MissingPackageError,
    SonoscoError,
    StorageError,
    UsageError,
    as_sentence,
    list_some,
    message_of,
)
from sonosco_like.redaction import mask_secrets
from sonosco_like.runs.checkpoints import Checkpoints, own_final
from sonosco_like.runs.identity import read_id
from sonosco_like.runs.run_folder import BEST, CHECKPOINTS, CONFIG, ENVIRONMENT, FINAL, LATEST, LOCK, RUN_ID
from sonosco_like.serialization import GRAPH_FILE, STATE_FILE, TENSOR_FILE, detect_replacement, hash_file, parse_origin
from sonosco_like.untrusted_files import check_writing

logger = logging.getLogger(__name__)

COMPLETE = "complete.json"
SAVED = (STATE_FILE, GRAPH_FILE, TENSOR_FILE)  # the state file first, since it names the run if the copy is interrupted
REMOTE_NAME = re.compile(r"(checkpoints/step-(\d{8,})|final)-[0-9a-f]{12}")
_COPIED_SEPARATELY = (LOCK, LATEST, BEST, CHECKPOINTS, FINAL)  # or written again by the process that resumes
_PAUSES = (1.0, 5.0, 20.0)  # seconds before the next attempt
_MOST_NAMED = 5


class RemoteCopy:
    """Keeps the copy of a run at a URL up to date during the training; without a URL it does nothing.

    A failed copy is logged as a warning; the next checkpoint and the end of the run each start another attempt.
    """

    def __init__(self, folder: Path, url: str | None, pauses: tuple[float, ...] = _PAUSES) -> None:
        self.folder, self.url, self.pauses = folder, url, pauses
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: Future[None] | None = None
        self._copied: dict[str, tuple[int, int]] = {}
        self._made: set[str] = set()

    def __enter__(self) -> RemoteCopy:
        if self.url is not None:
            check_writing(self.url, "remote")
            self._system, self._root = open_url(self.url)
            if isinstance(self._system.protocol, tuple) and "file" in self._system.protocol:
                check_writing(self._root, "remote")
                self._refuse_own_folder()
            self._place = RemotePlace(self._system, self._root, self.url, self.folder)
            self._try_to_claim()
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="uploading")
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self.saved(self.folder)
            self._pool.shutdown()
            self._pool = None

    def saved(self, path: Path) -> None:
        """Start a copy of everything new: now, or when the running copy ends."""
        if self._pool is not None and (self._waiting is None or self._waiting.running() or self._waiting.done()):
            self._waiting = self._pool.submit(self._try_to_copy)

    def _refuse_own_folder(self) -> None:
        """Raise UsageError if the copy would lie in the run folder, where it would copy itself."""
        if Path(self._root).resolve().is_relative_to(self.folder.resolve()):
            raise UsageError(
                f"`remote` is {self.url}, which is inside the run folder. Choose a place outside the run folder."
            )

    def _try_to_claim(self) -> None:
        """Refuse a place of another run. If the place cannot be reached now, the first copy checks it."""
        try:
            self._place.claim(set(self._local_folders()))
        except SonoscoError:
            raise
        except Exception as error:  # each kind of store has its own error classes
            text = "The remote copy at %s cannot be reached now: %s: %s. The run goes on, and tries again."
            logger.warning(text, self.url, type(error).__name__, error)

    def _try_to_copy(self) -> None:
        for pause in (*self.pauses, None):
            try:
                self._copy()
                return
            except UsageError as error:  # the place is another run's, and another attempt would not help
                logger.warning("This run is not copied: %s", error)
                return
            except Exception as error:  # each kind of store has its own error classes
                if pause is not None:
                    time.sleep(pause)
                    continue
                text = "The copy of this run at %s is not up to date: %s: %s"
                logger.warning(text, self.url, type(error).__name__, error)

    def _copy(self) -> None:
        self._system.invalidate_cache()
        self._place.claim(set(self._local_folders()))
        there = set(complete_folders(self._system, self._root))
        local = self._local_folders()
        self._copy_other_files()  # first, since a resume from a checkpoint needs all rows and points that it counts
        for name, path in local.items():
            if name not in there:
                self._copy_folder(path, name)
        self._delete_old_folders(set(local))

    def _local_folders(self) -> dict[str, Path]:
        """The checkpoints and the final trainer of the run by their remote names, the newest checkpoint first."""
        final = own_final(self.folder)
        saved = [*reversed(Checkpoints(self.folder).all()), *([final] if final is not None else [])]
        states = {path: _read(path / STATE_FILE) for path in saved}
        return {_remote_name(path, content): path for path, content in states.items() if content is not None}

    def _copy_folder(self, path: Path, name: str) -> None:
        with detect_replacement(path) as is_unchanged:
            try:
                sums = {file: hash_file(path / file) for file in SAVED}
                for file in SAVED:
                    self._put(path / file, f"{name}/{file}")
            except (StorageError, FileNotFoundError):
                if is_unchanged():
                    raise
            if is_unchanged():  # else it was replaced, and the next copy takes the new one, or it was deleted
                marker = json.dumps({"run": self._place.id, "files": sums, "time": time.time()}, indent=1)
                self._system.pipe_file(f"{self._root}/{name}/{COMPLETE}", marker.encode())

    def _copy_other_files(self) -> None:
        """Copy the other files that changed. A resume drops the rows that were written after its checkpoint."""
        for path in _files_in(self.folder):
            found = path.stat()
            stamp, name = (found.st_size, found.st_mtime_ns), path.relative_to(self.folder).as_posix()
            if self._copied.get(name) != stamp:
                with tempfile.TemporaryDirectory() as temporary:  # stores refuse a file that grows while it is sent
                    self._replace(Path(shutil.copy(path, temporary)), name)
                self._copied[name] = stamp

    def _delete_old_folders(self, wanted: set[str]) -> None:
        """Delete the remote checkpoints that the run folder does not hold any more."""
        for name in remote_folders(self._system, self._root) if wanted else ():
            if name not in wanted:
                self._place.delete(name)

    def _replace(self, path: Path, name: str) -> None:
        """Replace a remote file by renaming, so that a kill during the copy leaves the old file whole."""
        folder, _, last = name.rpartition("/")
        aside = f"{folder}/.{last}.saving".lstrip("/")
        self._put(path, aside)
        self._system.mv(f"{self._root}/{aside}", f"{self._root}/{name}")

    def _put(self, path: Path, name: str) -> None:
        target = f"{self._root}/{name}"
        folder = target.rpartition("/")[0]
        if folder not in self._made:
            self._system.makedirs(folder, exist_ok=True)
            self._made.add(folder)
        self._system.put_file(str(path), target)


def is_url(text: str) -> bool:
    """Whether a place is a URL rather than a folder."""
    return "://" in text


def open_url(url: str) -> tuple[Any, str]:
    """The file system of a URL and the path in it. Raises a SonoscoError if it cannot be opened."""
    try:
        fsspec: Any = importlib.import_module("fsspec")
    except ImportError as error:
        raise MissingPackageError(
            f"{url} needs the package fsspec. Install it with: pip install 'sonosco_like[remote]'"
        ) from error
    try:
        system, root = fsspec.url_to_fs(url)
    except ImportError as error:
        raise MissingPackageError(f"{url} needs a package that is not installed: {error}") from error
    except ValueError as error:
        raise UsageError(f"{url} is not a URL that fsspec can open: {as_sentence(error)}") from error
    except Exception as error:  # some stores connect at once, and each has its own error classes
        raise StorageError(f"{mask_secrets(url)} cannot be reached: {as_sentence(message_of(error))}") from error
    return system, root.rstrip("/")


def _files_in(folder: Path) -> list[Path]:
    """The files of a run that are copied one by one. Hidden files are left out: they are still being written."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    parts = {path: path.relative_to(folder).parts for path in found}
    return [
        path for path in found if parts[path][0] not in _COPIED_SEPARATELY and not any(p[0] == "." for p in parts[path])
    ]


def _remote_name(path: Path, state: bytes) -> str:
    place = path.name if path.name == FINAL else f"{CHECKPOINTS}/{path.name}"
    return f"{place}-{hashlib.sha256(state).hexdigest()[:12]}"


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


class RemotePlace:
    """The remote folder, in a file system of fsspec, for the copy of the run in `folder`."""

    def __init__(self, system: Any, root: str, url: str, folder: Path) -> None:
        self.system, self.root, self.url, self.folder = system, root, url, folder
        self.id = read_id(folder / RUN_ID) or ""
        self._is_claimed = False

    def claim(self, local: set[str]) -> None:
        """Write the id of this run to the place. Raises UsageError if the place holds another run.

        `local` are the remote names of the checkpoints in the run folder.
        """
        found = self._read(RUN_ID)
        if found is not None and found.decode(errors="replace").strip() != self.id:
            raise UsageError(
                f"{self.url} holds another run. Give this run another `remote`, or continue the other run with: "
                f"sonosco resume {self.url}"
            )
        if found is None:
            self._refuse_foreign_files(local)
            self.system.makedirs(self.root, exist_ok=True)
            self.system.pipe_file(f"{self.root}/{RUN_ID}", f"{self.id}\n".encode())
        if not self._is_claimed:
            self._refuse_older_folder(local)
        self._is_claimed = True

    def delete(self, name: str) -> None:
        """Delete a remote checkpoint of this run, `complete.json` first; any other folder stays."""
        found = self._files_of(name)
        if found is None or not self._is_own(name):
            return
        for file in sorted(found, key=lambda file: file != COMPLETE):
            self.system.rm_file(f"{self.root}/{name}/{file}")
        if self.system.exists(f"{self.root}/{name}"):  # an object store has no empty folders
            self.system.rmdir(f"{self.root}/{name}")

    def _files_of(self, name: str) -> list[str] | None:
        """The files in a remote folder; None if it holds anything but the files of a checkpoint."""
        found = names_in(self.system, f"{self.root}/{name}")
        return found if REMOTE_NAME.fullmatch(name) and set(found) <= {*SAVED, COMPLETE} else None

    def _is_own(self, name: str) -> bool:
        """Whether a remote checkpoint is of this run.

        An older version wrote no id into `complete.json`, and an incomplete copy has no such file: then the state file
        decides. A copy with neither is this run's, because its place is.
        """
        try:
            run = json.loads(self._read(f"{name}/{COMPLETE}") or b"{}").get("run")
        except (ValueError, AttributeError):
            return False
        if run is None:
            try:
                origin = parse_origin(self._read(f"{name}/{STATE_FILE}") or b"", name)
            except (StorageError, ConfigError):  # torn by a kill
                origin = None
            run = origin.run if origin is not None else self.id
        return bool(run == self.id)

    def _refuse_foreign_files(self, local: set[str]) -> None:
        """Raise UsageError for a place without an id, unless it is empty or an older version copied this run to it."""
        there = names_in(self.system, self.root)
        if not there:
            return
        same_config = self._is_same(CONFIG)
        shared = sorted(local & set(complete_folders(self.system, self.root)))
        if not same_config or not (shared or self._is_same(ENVIRONMENT)):
            raise UsageError(
                f"{self.url} is not empty and does not hold this run ({list_some(sorted(there), _MOST_NAMED)}). "
                "Nothing was changed there. Give the run a `remote` that is empty or does not exist yet."
            )
        proof = shared[0] if shared else ENVIRONMENT
        logger.info("%s has no %s, but its %s and %s are those of this run.", self.url, RUN_ID, CONFIG, proof)

    def _refuse_older_folder(self, local: set[str]) -> None:
        """Raise UsageError if the copy is ahead of the run folder: its newer checkpoints would be deleted."""
        there = max(map(_step, complete_folders(self.system, self.root)), default=-1)
        here = max(map(_step, local), default=-1)
        if there > here:
            raise UsageError(
                f"{self.url} has come further with this run (step {there}) than {self.folder} "
                f"({f'step {here}' if here >= 0 else 'no checkpoint'}). "
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


def remote_folders(system: Any, root: str) -> list[str]:
    """The remote checkpoints, complete or not, by their names below `root`."""
    checkpoints = [f"{CHECKPOINTS}/{name}" for name in names_in(system, f"{root}/{CHECKPOINTS}")]
    return checkpoints + [name for name in names_in(system, root) if name.startswith(f"{FINAL}-")]


def complete_folders(system: Any, root: str) -> list[str]:
    """The complete remote checkpoints, by their names below `root`."""
    named = [name for name in remote_folders(system, root) if REMOTE_NAME.fullmatch(name)]
    return [name for name in named if system.exists(f"{root}/{name}/{COMPLETE}")]


def names_in(system: Any, path: str) -> list[str]:
    """The names in a remote folder; none if the folder does not exist."""
    try:
        found = [each.rstrip("/") for each in system.ls(path, detail=False)]
    except FileNotFoundError:
        return []
    return [each.rpartition("/")[2] for each in found if each != path.rstrip("/")]


def _step(name: str) -> int:
    """The step in the name of a remote checkpoint; 0 for `final`, whose name holds none."""
    match = REMOTE_NAME.fullmatch(name)
    return int(match[2]) if match and match[2] else 0

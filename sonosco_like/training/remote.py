"""A copy of a run at a URL: made in the background, whole or not there, and good to continue the run from elsewhere.

The remote folder is the run folder, whose `run_id` is written first and says whose it is. Each checkpoint is called by
its step and the hash of its state, so that none is ever overwritten. It is complete only when `complete.json` is in it,
which is written last.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import shutil
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sonosco_like.errors import MissingPackageError, SonoscoError, StorageError, UsageError
from sonosco_like.inference.checkpoints import own_final
from sonosco_like.passwords import masked
from sonosco_like.permissions import check_writing
from sonosco_like.run_folder import BEST, CHECKPOINTS, FINAL, LATEST, LOCK
from sonosco_like.serialization import files
from sonosco_like.serialization.folder import STATE
from sonosco_like.training.checkpoints import Checkpoints
from sonosco_like.training.remote_place import COMPLETE, SAVED, RemotePlace, complete_folders, folders

logger = logging.getLogger(__name__)

_ELSEWHERE = (LOCK, LATEST, BEST, CHECKPOINTS, FINAL)  # made anew, or copied in their own way
_PAUSES = (1.0, 5.0, 20.0)  # seconds before another attempt


class RemoteCopy:
    """Keeps the copy of a run at a URL up to date while it is trained; without a URL it does nothing.

    What cannot be copied is a warning, and is tried again with the next checkpoint and at the end of the run.
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
        """Copy what is new, soon: now, or after the copy under way."""
        if self._pool is not None and (self._waiting is None or self._waiting.running() or self._waiting.done()):
            self._waiting = self._pool.submit(self._try_to_copy)

    def _refuse_own_folder(self) -> None:
        """A copy in the run folder would be copied with the rest, and write over what it copies."""
        if Path(self._root).resolve().is_relative_to(self.folder.resolve()):
            raise UsageError(
                f"`remote` is {self.url}, which is in the folder of the run itself. Give the copy a place elsewhere."
            )

    def _try_to_claim(self) -> None:
        """Refuse a place that is not this run's; if it cannot be reached now, it is looked at before the first copy."""
        try:
            self._place.claim(set(self._local_folders()))
        except SonoscoError:
            raise
        except Exception as error:  # each kind of store has its own
            said = "The remote copy at %s cannot be reached now: %s: %s. The run goes on, and tries again."
            logger.warning(said, self.url, type(error).__name__, error)

    def _try_to_copy(self) -> None:
        for pause in (*self.pauses, None):
            try:
                self._copy()
                return
            except UsageError as error:  # another run has the place, and trying again would not help
                logger.warning("This run is not copied: %s", error)
                return
            except Exception as error:  # each kind of store has its own
                if pause is not None:
                    time.sleep(pause)
                    continue
                said = "The copy of this run at %s is not up to date: %s: %s"
                logger.warning(said, self.url, type(error).__name__, error)

    def _copy(self) -> None:
        self._system.invalidate_cache()
        self._place.claim(set(self._local_folders()))
        there = set(complete_folders(self._system, self._root))
        local = self._local_folders()
        self._copy_others()  # first: a complete checkpoint must find all rows and points that it knows of
        for name, path in local.items():
            if name not in there:
                self._copy_folder(path, name)
        self._delete_others(set(local))

    def _local_folders(self) -> dict[str, Path]:
        """What is saved here under the names it has there, the newest checkpoint first."""
        final = own_final(self.folder)
        saved = [*reversed(Checkpoints(self.folder).all()), *([final] if final is not None else [])]
        states = {path: _read(path / STATE) for path in saved}
        return {_remote_name(path, content): path for path, content in states.items() if content is not None}

    def _copy_folder(self, path: Path, name: str) -> None:
        with files.unchanged(path) as is_unchanged:
            try:
                sums = {file: files.hash_file(path / file) for file in SAVED}
                for file in SAVED:
                    self._put(path / file, f"{name}/{file}")
            except (StorageError, FileNotFoundError):
                if is_unchanged():
                    raise
            if is_unchanged():  # or it was replaced or deleted meanwhile, and is copied anew or wanted no more
                marker = json.dumps({"run": self._place.id, "files": sums, "time": time.time()}, indent=1)
                self._system.pipe_file(f"{self._root}/{name}/{COMPLETE}", marker.encode())

    def _copy_others(self) -> None:
        """What else is in the run folder and changed; rows that a checkpoint does not know are dropped on resume."""
        for path in _files_in(self.folder):
            found = path.stat()
            stamp, name = (found.st_size, found.st_mtime_ns), path.relative_to(self.folder).as_posix()
            if self._copied.get(name) != stamp:
                with tempfile.TemporaryDirectory() as still:  # a log that grows while it is sent would be refused
                    self._replace(Path(shutil.copy(path, still)), name)
                self._copied[name] = stamp

    def _delete_others(self, wanted: set[str]) -> None:
        """Delete there what was deleted here."""
        for name in folders(self._system, self._root) if wanted else ():
            if name not in wanted:
                self._place.delete(name)

    def _replace(self, path: Path, name: str) -> None:
        """Put a file in the place of an older one, which is not torn if this process is killed meanwhile."""
        place, _, last = name.rpartition("/")
        aside = f"{place}/.{last}.saving".lstrip("/")
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
    """The file system of a URL and the path in it. Raises a SonoscoError if there is none."""
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
        raise UsageError(f"{url} is not a URL that fsspec can open: {error}.") from error
    except Exception as error:  # some stores are asked at once, and each has errors of its own
        raise StorageError(f"{masked(url)} cannot be reached: {type(error).__name__}: {error}.") from error
    return system, root.rstrip("/")


def _files_in(folder: Path) -> list[Path]:
    """The files of a run beside what is saved by itself; hidden ones are still being written."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    parts = {path: path.relative_to(folder).parts for path in found}
    return [path for path in found if parts[path][0] not in _ELSEWHERE and not any(p[0] == "." for p in parts[path])]


def _remote_name(path: Path, state: bytes) -> str:
    place = path.name if path.name == FINAL else f"{CHECKPOINTS}/{path.name}"
    return f"{place}-{hashlib.sha256(state).hexdigest()[:12]}"


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None

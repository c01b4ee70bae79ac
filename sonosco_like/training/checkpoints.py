"""The checkpoints of a run: complete or not there, found again after any crash, kept as long as they are wanted."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path

from sonosco_like.errors import ConfigError, StorageError
from sonosco_like.serialization import files, verify

logger = logging.getLogger(__name__)

_FORM = re.compile(r"step-(\d{8,})")


class Checkpoints:
    """The folder `checkpoints/` of a run and the pointers `latest` and `best` beside it."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.folder = run / "checkpoints"

    def path_of(self, step: int) -> Path:
        """Where the checkpoint of a step is, or will be."""
        return self.folder / f"step-{step:08d}"

    def all(self) -> list[Path]:
        """Every checkpoint, the oldest first."""
        found = [path for path in self.folder.glob("step-*") if _FORM.fullmatch(path.name)]
        return sorted(found, key=step_of)

    def newest(self) -> Path | None:
        """The newest checkpoint that is intact; damaged ones are named in the log and passed over."""
        for path in reversed(self.all()):
            try:
                verify(path)
                return path
            except (StorageError, ConfigError) as error:
                logger.warning("The checkpoint %s is damaged and not used: %s", path.name, error)
        return None

    def point(self, name: str, path: Path) -> None:
        """Have `latest` or `best` name a checkpoint."""
        files.replace_file(self.run / name, f"checkpoints/{path.name}\n".encode())

    def pointed(self, name: str) -> Path | None:
        """The checkpoint that `latest` or `best` names, if it names one that is there."""
        pointer = self.run / name
        if not pointer.is_file():
            return None
        match = _FORM.search(pointer.read_text(errors="replace"))
        path = self.folder / match.group() if match else None
        return path if path is not None and path.is_dir() else None

    def prune(self, keep: set[Path], last: int) -> None:
        """Delete all but the last few and those that are wanted; the newest one stays in any case."""
        every = self.all()
        for path in every[: max(0, len(every) - max(1, last))]:
            if path not in keep:
                shutil.rmtree(path, ignore_errors=True)


def step_of(path: Path) -> int:
    """The step a checkpoint was taken at."""
    match = _FORM.fullmatch(path.name)
    return int(match.group(1)) if match else -1

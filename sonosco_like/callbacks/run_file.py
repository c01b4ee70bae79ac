"""The file or folder that a callback writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, runtime_checkable

from sonosco_like.errors import UsageError
from sonosco_like.events import TrainerContext
from sonosco_like.runs.run_folder import OWN
from sonosco_like.untrusted_files import break_hard_links, refuse_links
from sonosco_like.write_permissions import check_writing


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file or folder in the run folder.

    `path` is its place in the run folder. `folder` replaces the run folder when a trainer is used without an
    experiment. If two callbacks have the same path, the second one writes to a numbered one: `metrics-2.jsonl`.
    `unsearched` is a pattern of inner folders that are not written to any more; they are not searched for links.
    """

    path: str
    folder: Path = Path()
    unsearched: str = ""

    def __post_init__(self) -> None:
        place = PurePosixPath(self.path)
        if not place.parts or place.is_absolute() or ".." in place.parts or not self.path.isprintable():
            raise UsageError(f"`path` must be a place inside the folder of the run, got {self.path!r}.")
        if place.parts[0].casefold() in OWN or any(part.startswith(".") for part in place.parts):
            raise UsageError(f"`path` must not be one of the run's own files ({', '.join(OWN)}), got {self.path!r}.")
        if self.folder != Path():
            check_writing(self.folder, "folder")

    def resolve(self, context: TrainerContext) -> Path:
        """The path in this run. Raises UsageError if a link on the way would redirect what is written."""
        files = [callback.run_file for callback in context.callbacks if isinstance(callback, HasRunFile)]
        number = number_among(self, [file for file in files if PurePosixPath(file.path) == PurePosixPath(self.path)])
        path = Path(PurePosixPath(self.path))
        path = path.with_name(f"{path.stem}-{number + 1}{path.suffix}") if number else path
        if context.experiment is None:
            check_writing(self.folder, "folder")
            return self.folder / path
        folder = Path(context.experiment.folder)
        refuse_links(folder, path.parts[:1], self.unsearched)
        break_hard_links(folder, path.parts[:1])
        return folder / path


@runtime_checkable
class HasRunFile(Protocol):
    """A callback that writes to a file or folder of the run, which its fields `path` and `folder` name."""

    run_file: RunFile


def number_among(one: Any, others: Sequence[Any]) -> int:
    """The index of a callback among callbacks of its kind, so that no two of them write under one name."""
    return next((number for number, other in enumerate(others) if other is one), 0)

"""What all callbacks that write down a run have in common: where they write, and what they can write."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, TypeAlias

from sonosco_like.callbacks.naming import number_among
from sonosco_like.errors import UsageError
from sonosco_like.events import AbstractCallback, Moment
from sonosco_like.links import own_files, refuse_links
from sonosco_like.permissions import check_writing
from sonosco_like.run_folder import OWN
from sonosco_like.serialization import serializable

Plain: TypeAlias = "bool | int | float | str"


@serializable
class Destination(AbstractCallback, ABC):
    """Hears what is logged, and writes it down somewhere. Only the first process of a distributed run writes."""

    ranks: list[int] | None = field(default_factory=lambda: [0])

    @abstractmethod
    def on_log(self, moment: Moment) -> None:
        """Write down `moment.args["values"]`, as of `epoch` and `step`."""


@serializable
class WritesFiles(AbstractCallback, ABC):
    """Writes to a place in the folder of the run.

    `path` is where in the folder of the run it writes. `folder` stands in for the folder of the run when a trainer is
    used without an experiment. Of two callbacks with one path the second writes beside the first: `metrics.jsonl`,
    `metrics-2.jsonl`.
    """

    finished: ClassVar[str] = ""
    """The pattern of folders in its place to which nothing is written any more."""
    path: str
    folder: Path = Path()
    ranks: list[int] | None = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        place = self._within
        if not place.parts or place.is_absolute() or ".." in place.parts or not self.path.isprintable():
            raise UsageError(f"`path` must be a place inside the folder of the run, got {self.path!r}.")
        if place.parts[0].casefold() in OWN or any(part.startswith(".") for part in place.parts):
            raise UsageError(f"`path` must not be one of the run's own files ({', '.join(OWN)}), got {self.path!r}.")

        if self.folder != Path():
            check_writing(self.folder, "folder")

    def on_attach(self, moment: Moment) -> None:
        """Refuse at the start a place that could not be written to at the end."""
        self.place(moment.context)

    def place(self, context: Any) -> Path:
        """Where this callback writes in this run; nothing there is a link to anything elsewhere."""
        alike = [other for other in context.callbacks if isinstance(other, WritesFiles) and self._is_like(other)]
        number = number_among(self, alike)
        path = Path(self._within)
        path = path.with_name(f"{path.stem}-{number + 1}{path.suffix}") if number else path
        if context.experiment is None:
            check_writing(self.folder, "folder")
            return self.folder / path
        folder = Path(context.experiment.folder)
        refuse_links(folder, path.parts[:1], self.finished)
        own_files(folder, path.parts[:1])
        return folder / path

    @property
    def _within(self) -> PurePosixPath:
        return PurePosixPath(self.path)

    def _is_like(self, other: WritesFiles) -> bool:
        return other._within == self._within


def plain_values(values: Mapping[str, Any]) -> dict[str, Plain]:
    """The numbers and texts among logged values; pictures and tensors are for destinations that can show them."""
    plain: dict[str, Plain] = {}
    for name, value in values.items():
        if getattr(value, "ndim", None) == 0:
            value = value.item()
        if isinstance(value, str):
            plain[name] = writable(value)
        elif isinstance(value, (bool, int, float)):
            plain[name] = value
    return plain


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among logged values."""
    return {name: as_float(value) for name, value in plain_values(values).items() if not isinstance(value, str)}


def writable(text: str) -> str:
    """A text that any file takes; half of a pair of characters, which UTF-8 has no form for, by its number."""
    return text.encode("utf-8", "backslashreplace").decode()


def as_float(value: float) -> float:
    """A number as floating point, infinite if it is too large for that."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf

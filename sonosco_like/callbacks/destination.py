"""What callbacks may log, the destinations that write it to files and services, and their files in the run folder."""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from sonosco_like.errors import ConfigError, MissingPackageError, UsageError
from sonosco_like.events import AbstractCallback, Moment, TrainerContext
from sonosco_like.redaction import mask_secrets, mask_setting
from sonosco_like.runs.run_folder import CONFIG, OWN
from sonosco_like.serialization import Document, dumps, serializable
from sonosco_like.untrusted_files import break_hard_links, check_writing, refuse_links

Plain: TypeAlias = "bool | int | float | str"
"""A value that every destination can write."""


@dataclass(frozen=True, slots=True)
class Image:
    """A picture of height H and width W in C channels (1 or 3): uint8, or float from 0 to 1."""

    pixels_HWC: Tensor


@dataclass(frozen=True, slots=True)
class Audio:
    """A recording: samples from -1 to 1."""

    samples_N: Tensor
    sample_rate: int


@dataclass(frozen=True, slots=True)
class Markdown:
    """A text for people, with tables and emphasis; not for files with one value per column."""

    text: str


@dataclass(frozen=True, slots=True)
class DashboardData:
    """Data for a TensorBoard dashboard: the name of its plugin, a short description (`about`), and the parts."""

    plugin: str
    about: bytes
    parts: tuple[bytes, ...]


@serializable
class Destination(AbstractCallback, ABC):
    """Writes the values that are logged. Only the first process of a distributed run writes."""

    ranks: list[int] | None = field(default_factory=lambda: [0])

    @abstractmethod
    def on_log(self, moment: Moment) -> None:
        """Write `moment.args["values"]`, which belong to `moment.args["epoch"]` and `moment.args["step"]`."""


def plain_values(values: Mapping[str, Any]) -> dict[str, Plain]:
    """The numbers and texts among logged values; pictures and tensors are for destinations that can show them."""
    plain: dict[str, Plain] = {}
    for name, value in values.items():
        if getattr(value, "ndim", None) == 0:
            value = value.item()
        if isinstance(value, str):
            plain[name] = escape_surrogates(value)
        elif isinstance(value, (bool, int, float)):
            plain[name] = value
    return plain


def numeric_values(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among logged values."""
    return {name: as_float(value) for name, value in plain_values(values).items() if not isinstance(value, str)}


def escape_surrogates(text: str) -> str:
    """A text that can be written as UTF-8: a lone surrogate becomes an escape such as `\\ud800`."""
    return text.encode("utf-8", "backslashreplace").decode()


def as_float(value: float) -> float:
    """A number as floating point; infinite if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def optional_package(name: str, wanted_by: str, extra: str) -> Any:
    """Import an optional package. Raises MissingPackageError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{wanted_by} needs the package {name.partition('.')[0]}, which cannot be imported ({error}). "
            f"Install it with: pip install 'sonosco_like[{extra}]'"
        ) from error


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


_LEFT_OUT = ("callbacks",)  # callbacks are no hyperparameters


def config_text(context: TrainerContext) -> str | None:
    """The YAML of the run, without passwords; None if a part of the trainer cannot be written as YAML."""
    text = _yaml(context)
    return None if text is None else mask_secrets(text)


def _yaml(context: TrainerContext) -> str | None:
    """The config file in the run folder; without one, the YAML of the trainer."""
    if context.experiment is not None:
        file = Path(context.experiment.folder) / CONFIG
        if file.exists():
            return file.read_text(encoding="utf-8")
    try:
        return dumps(context, state=False)
    except ConfigError:
        return None


def hyperparameters(context: TrainerContext) -> dict[str, Plain]:
    """The numbers, texts and truth values of the config by path, `optimizer.lr`; empty if there is no YAML."""
    text = _yaml(context)
    return {} if text is None else dict(_flat(Document.parse(text, "config").get(), ()))


def _flat(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Plain]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in _LEFT_OUT:
                yield from _flat(inner, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _flat(item, (*path, str(place)))
    elif value is not None:
        yield ".".join(path), mask_setting(path[-1] if path else "", value) if isinstance(value, str) else value

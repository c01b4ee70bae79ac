"""The files of a run that callbacks use: the file or folder that each of them writes, and the config of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, runtime_checkable

from sonosco_like.callbacks.destination import Plain
from sonosco_like.errors import ConfigError, UsageError
from sonosco_like.events import TrainerContext
from sonosco_like.redaction import mask_secrets, mask_setting
from sonosco_like.runs.run_folder import CONFIG, OWN
from sonosco_like.serialization import Document, dumps
from sonosco_like.untrusted_files import break_hard_links, check_writing, refuse_links


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

"""The run in TensorBoard."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tensorboardX import summary

from sonosco_like.callbacks.destinations.destination import Destination, Plain, WritesFiles
from sonosco_like.callbacks.event_file import EventFile, last_time_in, summary_of
from sonosco_like.callbacks.naming import families_of, tag_of
from sonosco_like.callbacks.run_config import config_text, hyperparameters
from sonosco_like.events import Moment
from sonosco_like.run_folder import TENSORBOARD, following_name
from sonosco_like.serialization import serializable, state

_SUFFIX = ".sonosco"  # marks the files that are this callback's to cut and delete


@serializable
class TensorBoardCallback(WritesFiles, Destination):
    """Writes everything that is logged to TensorBoard, at the global step.

    Measures stand together as `loss/train`, `loss/val`, `wer/val`; other values under their own names. Numbers become
    curves; texts, figures, `Image`, `Audio` and tensors (as histograms) are shown as what they are. The config is there
    as text and as hyperparameters. LogMeasures, LRMonitor and the like say what is logged.

    Every start of a run writes a new file. The state knows how much of each file belongs to it: a resumed run cuts off
    what a lost run wrote after the checkpoint, so that no point is there twice and none is missing.
    """

    path: str = TENSORBOARD
    sizes: dict[str, int] = state({})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._file: EventFile | None = None
        self._name = ""

    def on_attach(self, moment: Moment) -> None:
        """Drop what was written after the state that is continued from, and begin a new file."""
        if self._file is not None:
            return
        context = moment.context
        folder = self.place(context)
        folder.mkdir(parents=True, exist_ok=True)
        self._name = _following_name(folder)
        written = max(map(last_time_in, _own_files(folder)[-1:]), default=0.0)
        self._drop_what_was_lost(folder)
        is_new = not self.sizes
        self._file = EventFile(folder / self._name, written)
        self._file.forget_from(context.global_step + 1 if context.global_step else 0)
        if is_new:
            self._describe(context)
        self._written()

    def on_log(self, moment: Moment) -> None:
        if self._file is None:
            return
        families = families_of(moment.context)
        for name, value in moment.args["values"].items():
            content = summary_of(tag_of(name, families), value)
            if content is not None:
                self._file.add(content, moment.args["step"])
        self._written()

    def on_checkpoint_start(self, moment: Moment) -> None:
        """A checkpoint that survives a power failure must not know of points that do not."""
        if self._file is not None:
            self._file.flush(to_disk=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _written(self) -> None:
        assert self._file is not None
        self._file.flush()
        self.sizes = {**self.sizes, self._name: self._file.size}

    def _drop_what_was_lost(self, folder: Path) -> None:
        for file in _own_files(folder):
            if file.name not in self.sizes:
                file.unlink()
            elif file.stat().st_size > self.sizes[file.name]:
                os.truncate(file, self.sizes[file.name])

    def _describe(self, context: Any) -> None:
        text = config_text(context)
        if text is None or self._file is None:
            return
        as_code = "\n".join(f"    {line}" for line in text.splitlines())
        self._file.add(summary.text("config", as_code), 0)
        sets = ["", *(f"val_{name}_" if name else "val_" for name in context.validation_sets)]
        families = families_of(context)
        measured = [tag_of(kind + family, families) for kind in sets for family in families]
        for content in summary.hparams(_as_shown(hyperparameters(context)), dict.fromkeys(measured))[:2]:
            self._file.add(content, 0)


def _as_shown(settings: dict[str, Plain]) -> dict[str, Plain]:
    """Settings as TensorBoard takes them: whole numbers that do not fit into 64 bits as texts."""
    too_large = (name for name, value in settings.items() if isinstance(value, int) and abs(value) >= 2**63)
    return settings | {name: str(settings[name]) for name in too_large}


def _own_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*tfevents*{_SUFFIX}"))


def _following_name(folder: Path) -> str:
    """A name after all that are there, lost ones too: TensorBoard reads files by name, and goes back to none."""
    taken = (file.name.removesuffix(_SUFFIX) for file in folder.iterdir() if "tfevents" in file.name)
    return following_name(f"events.out.tfevents.{int(time.time()):010d}", taken) + _SUFFIX

"""Writes logged values to TensorBoard."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tensorboardX import summary

from sonosco_like.callbacks.destinations.destination import Destination
from sonosco_like.callbacks.destinations.event_file import EventFile, last_record_time, make_summary
from sonosco_like.callbacks.measures import families_of, tag_of
from sonosco_like.callbacks.media import Plain
from sonosco_like.callbacks.run_config import config_text, hyperparameters
from sonosco_like.callbacks.run_file import RunFile
from sonosco_like.events import Moment, TrainerContext
from sonosco_like.runs.run_folder import TENSORBOARD, following_name
from sonosco_like.serialization import serializable, state

_SUFFIX = ".sonosco"  # marks the files that this callback may cut and delete


@serializable
class TensorBoardCallback(Destination):
    """Writes everything that is logged to TensorBoard, at the global step.

    Measures are grouped as `loss/train`, `loss/val`, `wer/val`; other values keep their names. Numbers become curves,
    tensors become histograms; texts, figures, `Image` and `Audio` are shown too. The config is shown as text and as
    hyperparameters. Other callbacks, such as LogMeasures and LRMonitor, log the values.

    Every start of a run writes a new file. The state holds the size of each file: a resumed run cuts off the records
    that were written after the checkpoint, so that no point is missing or there twice.
    """

    path: str = TENSORBOARD
    folder: Path = Path()
    sizes: dict[str, int] = state({})

    def __post_init__(self) -> None:
        self.run_file = RunFile(self.path, self.folder)
        self._file: EventFile | None = None
        self._name = ""

    def on_attach(self, moment: Moment) -> None:
        """Drop the records that were written after the checkpoint, and begin a new file."""
        if self._file is not None:
            return
        context = moment.context
        folder = self.run_file.resolve(context)
        folder.mkdir(parents=True, exist_ok=True)
        self._name = _following_name(folder)
        written = max(map(last_record_time, _own_files(folder)[-1:]), default=0.0)
        self._drop_lost_records(folder)
        is_new = not self.sizes
        self._file = EventFile(folder / self._name, written)
        self._file.forget_from(context.global_step + 1 if context.global_step else 0)
        if is_new:
            self._describe(context)
        self._note_size()

    def on_log(self, moment: Moment) -> None:
        if self._file is None:
            return
        families = families_of(moment.context)
        for name, value in moment.args["values"].items():
            content = make_summary(tag_of(name, families), value)
            if content is not None:
                self._file.add(content, moment.args["step"])
        self._note_size()

    def on_checkpoint_start(self, moment: Moment) -> None:
        """Flush to disk: a checkpoint that survives a power failure must not count lost records."""
        if self._file is not None:
            self._file.flush(to_disk=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _note_size(self) -> None:
        assert self._file is not None
        self._file.flush()
        self.sizes = {**self.sizes, self._name: self._file.size}

    def _drop_lost_records(self, folder: Path) -> None:
        for file in _own_files(folder):
            if file.name not in self.sizes:
                file.unlink()
            elif file.stat().st_size > self.sizes[file.name]:
                os.truncate(file, self.sizes[file.name])

    def _describe(self, context: TrainerContext) -> None:
        text = config_text(context)
        if text is None or self._file is None:
            return
        as_code = "\n".join(f"    {line}" for line in text.splitlines())
        self._file.add(summary.text("config", as_code), 0)
        sets = ["", *(f"val_{name}_" if name else "val_" for name in context.validation_sets)]
        families = families_of(context)
        measured = [tag_of(kind + family, families) for kind in sets for family in families]
        for content in summary.hparams(_hyperparameter_values(hyperparameters(context)), dict.fromkeys(measured))[:2]:
            self._file.add(content, 0)


def _hyperparameter_values(settings: dict[str, Plain]) -> dict[str, Plain]:
    """Settings that TensorBoard accepts: integers of more than 64 bits become texts."""
    too_large = (name for name, value in settings.items() if isinstance(value, int) and abs(value) >= 2**63)
    return settings | {name: str(settings[name]) for name in too_large}


def _own_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*tfevents*{_SUFFIX}"))


def _following_name(folder: Path) -> str:
    """A name that sorts after all files, also lost ones: TensorBoard reads files in the order of their names."""
    taken = (file.name.removesuffix(_SUFFIX) for file in folder.iterdir() if "tfevents" in file.name)
    return following_name(f"events.out.tfevents.{int(time.time()):010d}", taken) + _SUFFIX
